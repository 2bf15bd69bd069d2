package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// Objects of any size survive a restart, below --bodies, and what was replaced is cleaned.
func TestBodies(t *testing.T) {
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "bodies")
	flags := []string{"--bodies", "file://" + dir, "--clean-every", "20ms"}
	p := start(t, data, flags...)
	ok(t, "", "bucket", "create", "files", "--server", p.s3)
	large := strings.Repeat("0123456789", 100_000)
	put := func(body string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPut, p.s3+"/files/a/b", strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
	}
	put("replaced" + large)
	put(large)
	require.Eventually(t, func() bool {
		_, metrics := get(t, p.admin+"/metrics")
		return strings.Contains(metrics, `evenkeel_objects_cleaned_total{step="superseded"} 1`)
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	p = start(t, data, flags...)
	status, body := get(t, p.s3+"/files/a/b")
	require.Equal(t, 200, status)
	require.Equal(t, large, body)
	_, err := os.Stat(filepath.Join(data, "bodies"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, bad := range []string{"/srv/bodies", "file://host/srv", "s3://bucket/prefix", "file:srv", "file:///srv?x"} {
		says(t, daemon.ExitUsage, "serve --bodies "+bad, "--bodies")
	}
}
