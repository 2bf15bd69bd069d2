package pebblestore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// tree describes all files below a directory: names, owners, modes, sizes, and times but of lock files.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		of := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintln(path, info.Mode(), of.Uid, of.Gid, info.Size())
		if d.Name() != "LOCK" {
			line += info.ModTime().String()
		}
		all = append(all, line)
		return nil
	}))
	return all
}

// putOne writes a row.
func putOne(t *testing.T, s *directory, p store.Partition, key string) {
	t.Helper()
	row := store.Row{Key: []byte(key), Value: store.EntryCell([]byte("v")), Timestamp: 1}
	require.NoError(t, s.Put(t.Context(), p, row))
}

// TestReadOnly: a store that is opened to be read shows all that was acknowledged, takes writes, and leaves every file
// as it is, whether the writes before are in tables or in logs.
func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := newPartition()
	for round := range 3 {
		s, err := openDirectory(dir, Options{})
		require.NoError(t, err)
		putOne(t, s, p, fmt.Sprint(round))
		require.NoError(t, s.Close())
		before := tree(t, dir)
		for range 2 {
			s, err := openDirectory(dir, Options{ReadOnly: true})
			require.NoError(t, err)
			_, err = openDirectory(dir, Options{ReadOnly: true})
			require.Equal(t, store.Unavailable, store.KindOf(err), "it is locked")
			for range 2 {
				page, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 100})
				require.NoError(t, err)
				require.Len(t, page.Rows, round+1)
			}
			putOne(t, s, p, "x")
			require.NoError(t, s.db.Flush())
			require.NoError(t, s.Close())
		}
		require.Equal(t, before, tree(t, dir))
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
	before := tree(t, dir)
	s, err := openDirectory(dir, Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, before, tree(t, dir), "no lock file is made")
	none := filepath.Join(t.TempDir(), "none")
	_, err = openDirectory(none, Options{ReadOnly: true})
	require.Equal(t, store.InvalidArgument, store.KindOf(err))
	require.NoDirExists(t, none)
}

// TestRootGivesFilesAway: what root creates in a data directory of another user belongs to that user.
func TestRootGivesFilesAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make files of another user")
	}
	const uid, gid = 4711, 4712
	parent := t.TempDir()
	require.NoError(t, os.Chown(parent, uid, gid))
	dir, backup := filepath.Join(parent, "data"), filepath.Join(parent, "backup")
	restored := filepath.Join(parent, "new", "restored")
	p := newPartition()
	for range 2 {
		s, err := openDirectory(dir, Options{})
		require.NoError(t, err)
		putOne(t, s, p, "k")
		require.NoError(t, s.db.Flush())
		require.NoError(t, s.Close())
	}
	s, err := openDirectory(dir, Options{})
	require.NoError(t, err)
	_, err = s.Backup(t.Context(), backup, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = Restore(t.Context(), backup, restored, Options{}, nil)
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(parent, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		of := info.Sys().(*syscall.Stat_t)
		require.Equal(t, [2]uint32{uid, gid}, [2]uint32{of.Uid, of.Gid}, path)
		return nil
	}))
}
