package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// theirFiles describes what lies below a directory: names, owners, modes and sizes, and times but of lock files.
func theirFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		of := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprint(path, " ", info.Mode(), " ", of.Uid, " ", of.Gid, " ", info.Size(), " ")
		if d.Name() != "LOCK" {
			line += info.ModTime().String()
		}
		all = append(all, line)
		return nil
	}))
	return all
}

// TestRootLeavesNothingBehind: checks by root of the data directory of a service change nothing, and the service can go
// on with what else root does to it.
func TestRootLeavesNothingBehind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a service as another user")
	}
	t.Parallel()
	const uid, gid = 4711, 4712
	root := harness.Build(t)
	home, err := os.MkdirTemp("", "evenkeel-service-") // others may not enter the directory of a test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	require.NoError(t, os.Chmod(home, 0o755))
	out, err := exec.Command("cp", filepath.Join(root.Bin, "listd"), filepath.Join(home, "real")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	asUser := fmt.Sprintf("#!/bin/sh\nexec setpriv --reuid=%d --regid=%d --clear-groups %s/real \"$@\"\n", uid, gid, home)
	require.NoError(t, os.WriteFile(filepath.Join(home, "listd"), []byte(asUser), 0o755))
	service := &harness.Programs{T: t, Bin: home, Dir: home}
	state := filepath.Join(home, "state")
	require.NoError(t, os.Mkdir(state, 0o750))
	require.NoError(t, os.Chown(state, uid, gid))

	body := strings.Repeat("body", 3000)
	data := filepath.Join(state, "data")
	// serves lets the service put an object, and read what it put before.
	puts := 0
	serves := func(data string) {
		t.Helper()
		s := service.Serve("--data", data)
		for i := range puts {
			require.Equal(t, body, harness.Request(t, "GET", fmt.Sprintf("%s/photos/%d", s.S3, i), "").Body)
		}
		require.Equal(t, 200, harness.Request(t, "PUT", s.S3+"/photos", "").Status)
		require.Equal(t, 200, harness.Request(t, "PUT", fmt.Sprintf("%s/photos/%d", s.S3, puts), body).Status)
		puts++
		require.Zero(t, s.End(syscall.SIGTERM))
	}
	serves(data)
	before := theirFiles(t, state)
	for _, check := range []string{"verify", "audit", "clean"} {
		words := strings.Fields(check)
		_, _, _ = root.Try("rebalancer", append(words, "--data", data)...)
		require.Equal(t, before, theirFiles(t, state), check)
	}
	require.Contains(t, root.Run("rebalancer", "verify", "--data", data), "clean")
	require.Contains(t, root.Run("rebalancer", "audit", "--data", data), "clean")
	require.Equal(t, before, theirFiles(t, state))
	serves(data)

	root.Run("rebalancer", "verify", "--data", data, "--repair")
	root.Run("rebalancer", "audit", "photos", "--data", data, "--condemn")
	restored := filepath.Join(state, "restored")
	root.Run("listd", "restore", data, "--data", restored)
	inRestored := puts
	// Bodies are brought back by other means, as docs/backup.md says.
	out, err = exec.Command("cp", "-a", filepath.Join(data, "bodies"), restored).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		of := info.Sys().(*syscall.Stat_t)
		require.Equal(t, [2]uint32{uid, gid}, [2]uint32{of.Uid, of.Gid}, path)
		return nil
	}))
	serves(data)
	puts = inRestored
	serves(restored)
}
