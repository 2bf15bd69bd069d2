package fileblobs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/blobtest"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
)

func open(t *testing.T, dir string) fileblobs.Store {
	s, err := fileblobs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func create(t *testing.T, s fileblobs.Store, name string) {
	t.Helper()
	require.NoError(t, s.Create(t.Context(), name, strings.NewReader(name), int64(len(name))))
}

func has(t *testing.T, s fileblobs.Store, name string) {
	t.Helper()
	body, size, err := s.Open(t.Context(), name, 0, 1<<10)
	require.NoError(t, err)
	defer body.Close()
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, name, string(text))
	require.Equal(t, int64(len(name)), size)
}

func list(t *testing.T, s fileblobs.Store) (names []string) {
	t.Helper()
	require.NoError(t, s.List(t.Context(), "", "", func(name string, size int64) error {
		require.Equal(t, int64(len(name)), size)
		names = append(names, name)
		return nil
	}))
	return names
}

// flat makes a place as servers of before left it.
func flat(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".unfinished"), 0o700))
	return dir
}

// A folder of ext4 is full at some two million names, so that no folder may have an entry for each key of a bucket.
func TestKeysOfABucketFanOut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("b/KEY%03d-/01", i))
		create(t, s, names[i])
		has(t, s, names[i])
	}
	create(t, s, "b/KEY000-/02")
	require.Equal(t, slices.Sorted(slices.Values(append(names, "b/KEY000-/02"))), list(t, s))
	entries, err := os.ReadDir(filepath.Join(dir, "b"))
	require.NoError(t, err)
	for _, e := range entries {
		require.Regexp(t, "^[+][0-9a-f]{3}$", e.Name())
	}
	require.Greater(t, len(entries), 200)
	both, err := filepath.Glob(filepath.Join(dir, "b", "*", "KEY000-", "*"))
	require.NoError(t, err)
	require.Len(t, both, 2)
	require.Equal(t, filepath.Dir(both[0]), filepath.Dir(both[1]), "one folder has all blobs of a key")
}

// Servers of before look only beside the folders of hashes: while one may live none has a blob, and none opens a place
// that has them. They make a folder .unfinished when they open a place.
func TestServersOfBeforeOpenNoPlaceWithFans(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	require.Error(t, os.MkdirAll(filepath.Join(dir, ".unfinished"), 0o700))

	dir = flat(t)
	s := open(t, dir)
	create(t, s, "b/KEY-/01")
	_, err := os.Stat(filepath.Join(dir, "b", "KEY-", "01"))
	require.NoError(t, err)
}

// An old place whose mark is made while no server runs has old blobs and new ones; so has one that has lost its mark.
func TestBlobsAreReadInBothPlaces(t *testing.T) {
	dir := flat(t)
	create(t, open(t, dir), "b/KEY1-/01")
	create(t, open(t, dir), "b/KEY3-/01")
	marked := t.TempDir()
	open(t, marked)
	text, err := os.ReadFile(filepath.Join(marked, ".unfinished"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, ".unfinished")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".unfinished"), text, 0o600))
	create(t, open(t, dir), "b/KEY2-/01")
	create(t, open(t, dir), "b/KEY4-/01")
	require.FileExists(t, filepath.Join(dir, "b", "KEY1-", "01"))
	require.NoFileExists(t, filepath.Join(dir, "b", "KEY2-", "01"))

	all := []string{"b/KEY1-/01", "b/KEY2-/01", "b/KEY3-/01", "b/KEY4-/01"}
	require.Equal(t, all, list(t, open(t, dir)))
	require.NoError(t, os.Remove(filepath.Join(dir, ".unfinished")))
	s := open(t, dir)
	require.Equal(t, all, list(t, s))
	for _, name := range all {
		has(t, s, name)
		require.NoError(t, s.Delete(t.Context(), name))
	}
	require.Empty(t, list(t, s))
	require.NoDirExists(t, filepath.Join(dir, "b"))
}

func TestAPlaceOfANewerServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".unfinished"), []byte("form 3\n"), 0o600))
	for _, open := range []func(string) (fileblobs.Store, error){fileblobs.Open, fileblobs.Look} {
		_, err := open(dir)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "use the newer program")
	}
}

func TestConformanceOfPlacesOfBefore(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) objects.Blobs { return open(t, flat(t)) })
}

// Of processes that open a new place at the same time none fails, and all write blobs where the others do.
func TestManyOpenANewPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var group errgroup.Group
	for i := range 16 {
		group.Go(func() error {
			s, err := fileblobs.Open(dir)
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Create(t.Context(), fmt.Sprintf("b/KEY%d-/01", i), strings.NewReader("x"), 1)
		})
	}
	require.NoError(t, group.Wait())
	files, err := filepath.Glob(filepath.Join(dir, "b", "+???", "KEY*-", "01"))
	require.NoError(t, err)
	require.Len(t, files, 16)
	marks, err := filepath.Glob(filepath.Join(dir, ".mark-*"))
	require.NoError(t, err)
	require.Empty(t, marks)
}

// BenchmarkFan lists a bucket of 20,000 keys, or of FAN_KEYS, as audits do, and puts into it, in one folder and in
// many.
func BenchmarkFan(b *testing.B) {
	keys := 20_000
	if text := os.Getenv("FAN_KEYS"); text != "" {
		var err error
		keys, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for _, form := range []string{"flat", "fans"} {
		dir := b.TempDir()
		if form == "flat" {
			require.NoError(b, os.Mkdir(filepath.Join(dir, ".unfinished"), 0o700))
		}
		s, err := fileblobs.Open(dir)
		require.NoError(b, err)
		defer s.Close()
		for i := range keys { // not synced, as by Create
			folder := filepath.Join(dir, "b")
			key := fmt.Sprintf("KEY%08d", i)
			if form == "fans" {
				sum := sha256.Sum256([]byte(key))
				folder = filepath.Join(folder, "+"+hex.EncodeToString(sum[:])[:3])
			}
			require.NoError(b, os.MkdirAll(filepath.Join(folder, key+"-"), 0o700))
			require.NoError(b, os.WriteFile(filepath.Join(folder, key+"-", "01"), nil, 0o600))
		}
		b.Run("list/"+form, func(b *testing.B) {
			for b.Loop() {
				n := 0
				require.NoError(b, s.List(b.Context(), "b/", "", func(string, int64) error { n++; return nil }))
				require.GreaterOrEqual(b, n, keys)
			}
		})
		b.Run("put/"+form, func(b *testing.B) {
			i := keys
			for b.Loop() {
				i++
				require.NoError(b, s.Create(b.Context(), fmt.Sprintf("b/KEY%08d-/01", i), strings.NewReader("x"), 1))
			}
		})
	}
}
