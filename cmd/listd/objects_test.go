package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestObjectCommands(t *testing.T) {
	server := "--server=" + memServer(t)
	ok(t, "", "bucket", "create", "abc", server)
	ok(t, "", "bucket", "create", "other", server)
	ok(t, "", "put", "abc", `a//b c/\xff`, "--value", "a note", server)
	ok(t, "from\x00stdin", "put", "abc", "k2", server)
	file := filepath.Join(t.TempDir(), "value")
	require.NoError(t, os.WriteFile(file, []byte("from a file"), 0o600))
	ok(t, "", "put", "abc", "k3", file, server)
	ok(t, "ignored", "put", "abc", "empty", "--value=", server)
	for key, want := range map[string]string{
		`a//b c/\xff`: "a note", "k2": "from\x00stdin", "k3": "from a file", "empty": "",
	} {
		require.Equal(t, want, ok(t, "", "get", "abc", key, server))
	}
	ok(t, "", "cp", "abc", `a//b c/\xff`, "copy", server)
	ok(t, "", "cp", "abc", "k3", "k3", "--to-bucket", "other", server)
	require.Equal(t, "a note", ok(t, "", "get", "abc", "copy", server))
	require.Empty(t, ok(t, "", "get", "other", "k3", "-o", file+"2", server))
	copied, err := os.ReadFile(file + "2")
	require.NoError(t, err)
	require.Equal(t, "from a file", string(copied))

	ok(t, "", "rm", "abc", "copy", "never there", `a//b c/\xff`, server)
	require.Equal(t, "empty\nk2\nk3\n", ok(t, "", "ls", "abc", server))

	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"get abc none", exitFailed, "NoSuchKey"},
		{"get none k2", exitFailed, "NoSuchBucket"},
		{"put none k --value x", exitFailed, "NoSuchBucket"},
		{"put abc k --value x value", exitUsage, "not both"},
		{"put abc k /no/such", exitUsage, "/no/such"},
		{"cp abc none k", exitFailed, "NoSuchKey"},
		{"rm abc", exitUsage, "--recursive"},
		{"rm abc k --dry-run", exitUsage, "--recursive"},
		{"rm abc --recursive", exitUsage, "--yes"},
		{"rm none --recursive k --dry-run", exitFailed, "NoSuchBucket"},
		{"bucket delete abc --dry-run", exitUsage, "--purge"},
		{"bucket delete abc --purge", exitUsage, "--yes"},
		{"bucket delete none --purge --yes", exitFailed, "NoSuchBucket"},
		{"rm abc k --prefix k", exitUsage, "--prefix"},
		{"rm abc --prefix k", exitUsage, "--yes"},
		{"rm none --prefix k --yes", exitFailed, "NoSuchBucket"},
		{"rm abc --prefix k --yes --concurrency 0", exitUsage, "--concurrency"},
	} {
		o := listd(t, "", append(strings.Fields(c.args), server)...)
		require.Equal(t, c.code, o.code, "%s: %s", c.args, o.err)
		require.Contains(t, o.err, c.says, c.args)
	}
	large := strings.Repeat("x", maxValueBytes+1)
	o := listd(t, large, "put", "abc", "large", server)
	require.Equal(t, exitFailed, o.code)
	require.Contains(t, o.err, "metadata")
	o = listd(t, large[:5000], "put", "abc", "large", server)
	require.Equal(t, exitFailed, o.code)
	require.Contains(t, o.err, "EntityTooLarge")
}
