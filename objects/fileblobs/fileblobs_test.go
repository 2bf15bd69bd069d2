package fileblobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/blobtest"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

func TestBlobsAreFiles(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Create(ctx, "b/AAA/BBB-/01", strings.NewReader("hello"), 5))
	body, size, err := s.Open(ctx, "b/AAA/BBB-/01", 1, 3)
	require.NoError(t, err)
	require.Equal(t, int64(5), size)
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "ell", string(got))
	require.NoError(t, body.Close())

	// What is read stays readable.
	body, _, err = s.Open(ctx, "b/AAA/BBB-/01", 0, 5)
	require.NoError(t, err)
	require.NoError(t, s.Delete(ctx, "b/AAA/BBB-/01"))
	require.NoError(t, s.Delete(ctx, "b/AAA/BBB-/01"), "deleted before")
	got, err = io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, body.Close())

	for _, name := range []string{"b/AAA/BBB-/01", "b/AAA"} { // a folder is no blob
		_, _, err = s.Open(ctx, name, 0, 1)
		require.ErrorIs(t, err, store.NotFound, name)
	}
	for _, name := range []string{"", "/", "a//b", "../x", "a/../b", ".unfinished/x", "a/", "a\x00", strings.Repeat("a", 256)} {
		require.ErrorIs(t, s.Create(ctx, name, strings.NewReader(""), 0), store.InvalidArgument, "%q", name)
		_, _, err := s.Open(ctx, name, 0, 0)
		require.ErrorIs(t, err, store.InvalidArgument, "%q", name)
		require.ErrorIs(t, s.Delete(ctx, name), store.InvalidArgument, "%q", name)
	}
}

func TestNothingIsLeftOfABodyThatFails(t *testing.T) {
	dir := t.TempDir()
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	hungUp := errors.New("the client has hung up")
	err = s.Create(t.Context(), "b/x", io.MultiReader(strings.NewReader("some"), &broken{hungUp}), 9)
	require.ErrorIs(t, err, hungUp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Create(ctx, "b/x", strings.NewReader("all"), 3), context.Canceled)
	files, err := filepath.Glob(filepath.Join(dir, writingFan, "*"))
	require.NoError(t, err)
	require.Empty(t, files)
	_, err = os.Stat(filepath.Join(dir, "b"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestConformance(t *testing.T) {
	empty := func(t *testing.T) objects.Blobs {
		s, err := open(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.ErrorIs(t, s.List(t.Context(), "../", "", nil), store.InvalidArgument)
		return s
	}
	blobtest.Run(t, empty)
	defer func(n int) { mostNames = n }(mostNames)
	for _, mostNames = range []int{1, 2, 3} { // a folder is read in several goes
		blobtest.InOrder(t, empty(t))
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, mark), 0o700)) // by a server of before
		flat, err := open(dir)
		require.NoError(t, err)
		blobtest.InOrder(t, flat)
		require.NoError(t, flat.Close())
	}
}

type broken struct{ err error }

func (b *broken) Read([]byte) (int, error) { return 0, b.err }

// What a process has left that was killed in a put is removed a day later, at the next start or while others write.
func TestUnfinishedFilesOfTheDeadAreRemoved(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	leave := func(name string, age time.Duration) {
		file := filepath.Join(dir, writingFan, name)
		require.NoError(t, os.WriteFile(file, []byte("half"), 0o600))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(-age)))
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(dir, writingFan))
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	leave("old", 25*time.Hour)
	leave("young", 23*time.Hour)
	require.NoError(t, s.Create(ctx, "b/x", strings.NewReader("x"), 1))
	require.Equal(t, []string{"old", "young"}, left(), "it was looked at the start")
	s.swept.Store(time.Now().Add(-sweepEvery).Unix())
	require.NoError(t, s.Create(ctx, "b/x", strings.NewReader("x"), 1))
	require.Equal(t, []string{"young"}, left())

	leave("old", 25*time.Hour)
	s.swept.Store(time.Now().Add(-sweepEvery).Unix())
	nothing := func(string, int64) error { return nil }
	require.NoError(t, s.List(ctx, "b/", "", nothing), "by an audit")
	require.Equal(t, []string{"young"}, left())

	leave("old", 25*time.Hour)
	looked, err := look(dir)
	require.NoError(t, err)
	require.NoError(t, looked.List(ctx, "b/", "", nothing))
	require.NoError(t, looked.Close())
	require.Len(t, left(), 2, "a check changes nothing")
	again, err := open(dir)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.Equal(t, []string{"young"}, left())
}

// No folder is left of blobs that are deleted, whatever is written beside them at the same time.
func TestEmptyFoldersAreRemoved(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			for range 50 {
				name := fmt.Sprintf("b/AAA/BBB-/%d", i)
				if err := s.Create(ctx, name, strings.NewReader("x"), 1); err != nil {
					return err
				}
				if err := s.Delete(ctx, name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.NoError(t, s.Create(ctx, "b/AAA/C/1", strings.NewReader("x"), 1))
	require.NoError(t, s.Create(ctx, "b/AAA/C/2", strings.NewReader("x"), 1))
	require.NoError(t, s.Delete(ctx, "b/AAA/C/1"))
	_, err = os.Stat(filepath.Join(dir, "b", "AAA", "BBB-"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, s.Delete(ctx, "b/AAA/C/2"))
	_, err = os.Stat(filepath.Join(dir, "b"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Who dies between a folder and its first blob, or between the last blob and the folder, leaves folders that listings
// remove, as audits make them, and checks do not. A put that has just made one makes it again.
func TestListingsRemoveEmptyFolders(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := open(dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Create(ctx, "b/KEY-/01", strings.NewReader("x"), 1))
	for _, left := range []string{"b/+0ab/AAA/BBB-/01", "b/+0ac", "b/CCC-", "gone/+0ad/KEY-"} {
		require.NoError(t, s.root.MkdirAll(left, 0o700))
	}
	list := func(s *directory) error { return s.List(ctx, "", "", func(string, int64) error { return nil }) }
	looked, err := look(dir)
	require.NoError(t, err)
	defer looked.Close()
	require.NoError(t, list(looked))
	require.DirExists(t, filepath.Join(dir, "gone", "+0ad", "KEY-"))
	require.NoError(t, list(s))
	all, err := filepath.Glob(filepath.Join(dir, "[a-z]*", "*"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoDirExists(t, filepath.Join(dir, "gone"))

	var group errgroup.Group
	for i := range 2 {
		group.Go(func() error {
			for n := range 20 {
				name := fmt.Sprintf("c/%d-/%d", i, n)
				if err := s.Create(ctx, name, strings.NewReader("x"), 1); err != nil {
					return err
				}
				for range 5 {
					if err := list(s); err != nil {
						return err
					}
				}
				if _, err := s.stat(name); err != nil {
					return err
				}
				if err := s.Delete(ctx, name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}
