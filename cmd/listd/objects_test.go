package main

import (
	"fmt"
	"net/http"
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
		{"rm abc", exitUsage, "--prefix"},
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

// TestPrefixesAreDeleted: over pages, after a question, and despite refused requests.
func TestPrefixesAreDeleted(t *testing.T) {
	refuse := 3
	server := "--server=" + memServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete && refuse > 0 {
				refuse--
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	var keys strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&keys, "a/%04d\n", i)
	}
	keys.WriteString("a\nb\n")
	ok(t, keys.String(), "load", "abc", "--create", "--progress", "none", server)
	terminal = func(any) bool { return true }
	defer func() { terminal = func(any) bool { return false } }()
	o := listd(t, "no\n", "rm", "abc", "--prefix", "a/", server)
	require.Equal(t, exitFailed, o.code)
	require.Contains(t, o.out, `Delete all keys of abc that begin with "a/"? [y/N]`)
	require.Contains(t, o.err, "nothing was deleted")
	out := ok(t, "y\n", "rm", "abc", "--prefix", "a/", "--concurrency", "1", "--progress", "none", server)
	require.Contains(t, out, "deleted 2500 keys\n")
	require.Equal(t, "a\nb\n", ok(t, "", "ls", "abc", server))
	require.Contains(t, ok(t, "", "rm", "abc", "--prefix=", "--yes", server), "deleted 2 keys")
	ok(t, "", "bucket", "delete", "abc", server)
}
