package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
)

// A directory is migrated that is known to be one of bodies, and that no older program uses; a second time nothing is
// left to do, and files that came since are moved.
func TestBodiesMigrate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".unfinished"), 0o700))
	body := func(file string) {
		file = filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte("body"), 0o600))
	}
	body("photos/AAA-/01")
	body("photos/BBB-/01/00001-01")
	body("videos/AAA-/01")
	body("videos/AAA-/02")
	migrate := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := ran(t, 0, "", append([]string{"bodies", "migrate", dir, "--progress", "none"}, args...)...)
		require.Equal(t, want, code, "%v: %s%s", args, out, errs)
		return out, errs
	}
	_, errs := migrate(daemon.ExitRefused, "--no-older-servers")
	require.Contains(t, errs, "has no mark _owner")
	server, err := fileblobs.Open(dir)
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, care.Claim(t.Context(), server, "0123"))
	_, errs = migrate(daemon.ExitRefused)
	require.Contains(t, errs, "end them all, and say so with --no-older-servers")
	require.FileExists(t, filepath.Join(dir, "photos", "AAA-", "01"))

	out, _ := migrate(0, "--no-older-servers")
	require.Equal(t, "3 keys of 2 buckets moved\nall bodies are in the folders of their hashes\n", out)
	files, err := filepath.Glob(filepath.Join(dir, "*", "+???", "*-", "*"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	require.NoError(t, server.Create(t.Context(), "photos/CCC-/01", strings.NewReader("body"), 4))

	body("photos/AAA-/02")
	var summary struct {
		Version  int
		Complete bool
		Summary  struct{ Buckets, Keys int }
	}
	out, _ = migrate(0, "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &summary))
	require.Equal(t, 1, summary.Version)
	require.True(t, summary.Complete)
	require.Equal(t, 1, summary.Summary.Keys)
	out, _ = migrate(0, "--rate", "100")
	require.Contains(t, out, "0 keys of 0 buckets moved\n")
	flat, err := filepath.Glob(filepath.Join(dir, "*", "[A-Z]*"))
	require.NoError(t, err)
	require.Empty(t, flat)

	code, _, errs := ran(t, 0, "", "bodies", "migrate", filepath.Join(dir, "none"))
	require.Equal(t, daemon.ExitUnusable, code, errs)
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 65534, 65534))
		_, errs = migrate(daemon.ExitRefused)
		require.Contains(t, errs, "belongs to user 65534: run this as that user")
	}
}
