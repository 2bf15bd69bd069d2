package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/care"
	sealing "github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A store that has claimed the place of --bodies knows it: the place without its mark is refused, whether the store has
// buckets of objects, and whatever is in the place.
func TestAClaimIsKeptWithTheRows(t *testing.T) {
	ctx, named := t.Context(), &serveCmd{Bodies: "file:///srv/bodies"}
	openRows := func(t *testing.T) *assembly.DB {
		db, err := assembly.Open(ctx, memstore.New(), assembly.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	openPlace := func(t *testing.T, inside ...string) objects.Blobs {
		dir := t.TempDir()
		for _, name := range inside {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("a body"), 0o600))
		}
		place, err := fileblobs.Open(dir)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, place.Close()) })
		return place
	}
	for name, inside := range map[string][]string{"empty": nil, "with bodies": {"files/a/b"}} {
		t.Run("the place is "+name, func(t *testing.T) {
			db := openRows(t)
			require.NoError(t, named.claim(ctx, db, openPlace(t), false))
			unmounted := openPlace(t, inside...)
			for range 2 {
				err := named.claim(ctx, db, unmounted, false)
				require.ErrorIs(t, err, errNoMark)
				require.ErrorContains(t, err, "--bodies-new")
				owner, err := care.Owner(ctx, unmounted)
				require.NoError(t, err)
				require.Empty(t, owner)
			}
			require.NoError(t, named.claim(ctx, db, unmounted, true))
			require.NoError(t, named.claim(ctx, db, unmounted, false))
		})
	}
	t.Run("an older program has made neither the mark nor the note", func(t *testing.T) {
		db, place := openRows(t), openPlace(t)
		o, err := objects.New(db.Client, place, objects.Options{})
		require.NoError(t, err)
		require.NoError(t, o.CreateBucket(ctx, "files"))
		require.ErrorIs(t, named.claim(ctx, db, place, false), errNoMark)
		b, _, err := o.Open(ctx, "files")
		require.NoError(t, err)
		_, err = b.Put(ctx, []byte("k"), strings.NewReader(strings.Repeat("x", 10_000)), objects.Meta{Size: -1})
		require.NoError(t, err)
		require.NoError(t, named.claim(ctx, db, place, false))
		require.ErrorIs(t, named.claim(ctx, db, openPlace(t), false), errNoMark)
	})
	t.Run("the default place is new where there is no bucket of objects", func(t *testing.T) {
		db, byDefault := openRows(t), &serveCmd{}
		require.NoError(t, byDefault.claim(ctx, db, openPlace(t), false))
		require.NoError(t, byDefault.claim(ctx, db, openPlace(t), false))
		require.NoError(t, named.claim(ctx, db, openPlace(t), false))
		require.ErrorIs(t, byDefault.claim(ctx, db, openPlace(t), false), errNoMark)
	})
	t.Run("the note can't be read", func(t *testing.T) {
		db := openRows(t)
		require.NoError(t, named.claim(ctx, db, openPlace(t), false))
		known, err := db.Store.Read(ctx, store.Process, []byte("bodies"), store.Serial)
		require.NoError(t, err)
		later := sealing.Seal(2, sealing.Next(known.Version), []byte("of a later program"))
		require.NoError(t, db.Store.Swap(ctx, store.Process, []byte("bodies"), known.Version, later))
		require.ErrorIs(t, named.claim(ctx, db, openPlace(t), false), errNoMark)
	})
}
