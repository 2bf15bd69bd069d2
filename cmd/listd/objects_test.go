package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
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
		{"get abc none", daemon.ExitFailed, "NoSuchKey"},
		{"get none k2", daemon.ExitFailed, "NoSuchBucket"},
		{"put none k --value x", daemon.ExitFailed, "NoSuchBucket"},
		{"put abc k --value x value", daemon.ExitUsage, "not both"},
		{"put abc k /no/such", daemon.ExitUsage, "/no/such"},
		{"cp abc none k", daemon.ExitFailed, "NoSuchKey"},
		{"rm abc", daemon.ExitUsage, "--recursive"},
		{"rm abc k --dry-run", daemon.ExitUsage, "--recursive"},
		{"rm abc --recursive", daemon.ExitUsage, "--yes"},
		{"rm none --recursive k --dry-run", daemon.ExitFailed, "NoSuchBucket"},
		{"bucket delete abc --dry-run", daemon.ExitUsage, "--purge"},
		{"bucket delete abc --purge", daemon.ExitUsage, "--yes"},
		{"bucket delete none --purge --yes", daemon.ExitFailed, "NoSuchBucket"},
		{"rm abc k --prefix k", daemon.ExitUsage, "--prefix"},
		{"rm abc --prefix k", daemon.ExitUsage, "--yes"},
		{"rm none --prefix k --yes", daemon.ExitFailed, "NoSuchBucket"},
		{"rm abc --prefix k --yes --concurrency 0", daemon.ExitUsage, "--concurrency"},
	} {
		o := listd(t, "", append(strings.Fields(c.args), server)...)
		require.Equal(t, c.code, o.code, "%s: %s", c.args, o.err)
		require.Contains(t, o.err, c.says, c.args)
	}
	large := strings.Repeat("x", maxValueBytes+1)
	o := listd(t, large, "put", "abc", "large", server)
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "metadata")
	o = listd(t, large[:5000], "put", "abc", "large", server)
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "EntityTooLarge")
}
