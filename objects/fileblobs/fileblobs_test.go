package fileblobs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func TestBlobsAreFiles(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := Open(dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Create(ctx, "b/AAA/BBB-/01", strings.NewReader("hello")))
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
		require.ErrorIs(t, s.Create(ctx, name, strings.NewReader("")), store.InvalidArgument, "%q", name)
		_, _, err := s.Open(ctx, name, 0, 0)
		require.ErrorIs(t, err, store.InvalidArgument, "%q", name)
		require.ErrorIs(t, s.Delete(ctx, name), store.InvalidArgument, "%q", name)
	}
}

func TestNothingIsLeftOfABodyThatFails(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	require.NoError(t, err)
	defer s.Close()
	hungUp := errors.New("the client has hung up")
	err = s.Create(t.Context(), "b/x", io.MultiReader(strings.NewReader("some"), &broken{hungUp}))
	require.ErrorIs(t, err, hungUp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Create(ctx, "b/x", strings.NewReader("all")), context.Canceled)
	files, err := filepath.Glob(filepath.Join(dir, unfinished, "*"))
	require.NoError(t, err)
	require.Empty(t, files)
	_, err = os.Stat(filepath.Join(dir, "b"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestListingsAreInOrder compares with a sorted list of names, also where a folder is read in several
// goes, and from each place on.
func TestListingsAreInOrder(t *testing.T) {
	defer func(n int) { mostNames = n }(mostNames)
	ctx := t.Context()
	s, err := Open(t.TempDir())
	require.NoError(t, err)
	defer s.Close()
	names := []string{
		"b/A", "b/A-/1", "b/A-/1-", "b/A-/2/00001-x", "b/A-/2/00002-x", "b/A-/3", "b/A/B-/1", "b/A0-/1", "b/A=/1",
		"b/AA-/1", "b/AA.x/1", "c/1", "b-/x", "b.c/x", "bb/x", "x",
	}
	for i, name := range names {
		if name == "b/A" {
			names[i] = "b/A.1" // a folder has that name
		}
		require.NoError(t, s.Create(ctx, names[i], strings.NewReader(strings.Repeat("x", i))))
	}
	sizes := map[string]int64{}
	for i, name := range names {
		sizes[name] = int64(i)
	}
	slices.Sort(names)
	for _, mostNames = range []int{1, 2, 3, 100} {
		for _, prefix := range []string{"", "b", "b/", "b/A", "b/A-/", "b/A-/2/", "b/A-/2/00001", "none/", "z"} {
			for _, after := range append([]string{"", "b/A-/2", "b/A-/2/", "b/B", "zz"}, names...) {
				var got, want []string
				require.NoError(t, s.List(ctx, prefix, after, func(name string, size int64) error {
					require.Equal(t, sizes[name], size, name)
					got = append(got, name)
					return nil
				}))
				for _, name := range names {
					if strings.HasPrefix(name, prefix) && name > after {
						want = append(want, name)
					}
				}
				require.Equal(t, want, got, "prefix %q after %q, %d names at a time", prefix, after, mostNames)
			}
		}
	}
	stop, n := errors.New("enough"), 0
	require.ErrorIs(t, s.List(ctx, "", "", func(string, int64) error { n++; return stop }), stop)
	require.Equal(t, 1, n)
	require.ErrorIs(t, s.List(ctx, "../", "", nil), store.InvalidArgument)
}

type broken struct{ err error }

func (b *broken) Read([]byte) (int, error) { return 0, b.err }
