package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// put sends a small object and returns the status of the answer.
func put(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("v"))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestReadyzWhileTheDiskIsFull: a server that refuses puts is not ready; it is again
// once there is space.
func TestReadyzWhileTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	p := start(t, filepath.Join(dir, "data"))
	ok(t, "a\n", "load", "abc", "--create", "--server", p.s3)
	status, _ := get(t, p.admin+"/readyz")
	require.Equal(t, 200, status)

	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	for chunk := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(chunk)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	waitFor(t, func() bool { return put(t, p.s3+"/abc/b") == 503 })
	status, body := get(t, p.admin+"/readyz")
	require.Equal(t, 503, status)
	require.Contains(t, body, "disk full: free at least")
	status, _ = get(t, p.s3+"/abc/a")
	require.Equal(t, 200, status, "reads go on")
	status, _ = get(t, p.admin+"/healthz")
	require.Equal(t, 200, status)

	require.NoError(t, os.Remove(ballast))
	waitFor(t, func() bool { return put(t, p.s3+"/abc/b") == 200 })
	status, _ = get(t, p.admin+"/readyz")
	require.Equal(t, 200, status)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}
