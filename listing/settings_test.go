package listing_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func TestSettings(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	open := func() *listing.Client {
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		return c
	}
	c := open()
	require.NoError(t, c.CreateBucket(ctx, "plain"))
	require.NoError(t, door.Client(c).CreateWith(ctx, "photos", []byte{1, 2}, []byte("m")))
	is := func(c *listing.Client, name string, want []byte) {
		t.Helper()
		got, err := c.Bucket(name).Settings(ctx)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	is(c, "plain", nil)
	is(c, "photos", []byte{1, 2})

	// The first change fails on the way: it is made of the present settings again.
	photos, tries := c.Bucket("photos"), 0
	require.NoError(t, door.Bucket(photos).ChangeSettings(ctx, func(now []byte) ([]byte, error) {
		if tries++; tries == 1 {
			require.NoError(t, door.Bucket(photos).ChangeSettings(ctx,
				func([]byte) ([]byte, error) { return []byte{3}, nil }))
		}
		return append(now, 4), nil
	}))
	require.Equal(t, 2, tries)
	is(c, "photos", []byte{3, 4})
	is(open(), "photos", []byte{3, 4})
	require.NoError(t, photos.Put(ctx, []byte("k"), nil))

	// So many times others may come first: moves of a bucket change its root, too.
	for others, kind := range map[int]store.Kind{39: 0, 40: store.Unavailable} {
		tries = 0
		err := door.Bucket(photos).ChangeSettings(ctx, func([]byte) ([]byte, error) {
			if tries++; tries <= others {
				require.NoError(t, door.Bucket(photos).ChangeSettings(ctx,
					func([]byte) ([]byte, error) { return []byte{byte(tries)}, nil }))
			}
			return []byte{byte(tries), 9}, nil
		})
		require.Equal(t, kind, store.KindOf(err), "%d others: %v", others, err)
		require.Equal(t, 40, tries)
	}
	require.NoError(t, door.Bucket(photos).ChangeSettings(ctx,
		func([]byte) ([]byte, error) { return []byte{3, 4}, nil }))

	no := errors.New("no")
	require.ErrorIs(t, door.Bucket(photos).ChangeSettings(ctx, func([]byte) ([]byte, error) { return nil, no }), no)
	err := door.Bucket(photos).ChangeSettings(ctx,
		func([]byte) ([]byte, error) { return make([]byte, mapcodec.MaxSettingsBytes+1), nil })
	require.ErrorIs(t, err, store.InvalidArgument)
	is(c, "photos", []byte{3, 4})
	err = door.Bucket(c.Bucket("none")).ChangeSettings(ctx, func([]byte) ([]byte, error) { return nil, nil })
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	_, err = c.Bucket("none").Settings(ctx)
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	require.ErrorIs(t, door.Client(c).CreateWith(ctx, "long", make([]byte, mapcodec.MaxSettingsBytes+1)),
		store.InvalidArgument)
	require.NoError(t, c.CreateBucket(ctx, "long"), "nothing is left of it")
}

// TestRemainsDoNotKeepABucket: they are freed once it is deleted for good, by this call or another one.
func TestRemainsDoNotKeepABucket(t *testing.T) {
	t.Run("deleted again", func(t *testing.T) { remainsDoNotKeep(t, false) })
	t.Run("brought to its end", func(t *testing.T) { remainsDoNotKeep(t, true) })
}

func remainsDoNotKeep(t *testing.T, end bool) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	var mu sync.Mutex
	var freed []string
	full := errors.New("the other store is away")
	var fails error
	remains := door.Remains{
		Gone: func(_, value []byte) bool { return string(value) == "burned" },
		Discard: func(_ context.Context, key, _ []byte) error {
			mu.Lock()
			defer mu.Unlock()
			freed = append(freed, string(key))
			return fails
		},
	}
	require.NoError(t, c.CreateBucket(ctx, "photos", []byte("b"), []byte("m")))
	photos := c.Bucket("photos")
	for _, key := range []string{"a", "c", "d", "z"} {
		require.NoError(t, photos.Put(ctx, []byte(key), []byte("burned")))
	}
	require.NoError(t, photos.Put(ctx, []byte("dd"), []byte("live")))
	require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "photos", remains), listing.ErrNotEmpty)
	require.Empty(t, freed, "a bucket that is not empty stays as it is")
	// Also where that is seen only once it is closed.
	hidden := remains
	var n atomic.Int32
	hidden.Gone = func(_, value []byte) bool { return n.Add(1) <= 5 || string(value) == "burned" }
	require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "photos", hidden), listing.ErrNotEmpty)
	require.Empty(t, freed)
	require.NoError(t, photos.Put(ctx, []byte("dd"), []byte("burned")))
	require.ErrorIs(t, c.DeleteBucket(ctx, "photos"), listing.ErrNotEmpty)

	fails = full
	require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "photos", remains), full)
	_, err = photos.Get(ctx, []byte("dd"))
	require.ErrorIs(t, err, listing.ErrNoSuchBucket, "it is not opened again: what was freed would be missing")
	require.ErrorIs(t, door.Client(c).EndDelete(ctx, "photos", remains), full)
	fails, freed = nil, nil
	others := remains
	others.Of = func(settings []byte) bool { return len(settings) > 0 }
	if end {
		require.NoError(t, door.Client(c).EndDelete(ctx, "photos", remains))
	} else {
		require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "photos", remains), listing.ErrNoSuchBucket,
			"the call before was it")
	}
	slices.Sort(freed)
	require.Equal(t, []string{"a", "c", "d", "dd", "z"}, freed)
	for range 2 {
		require.ErrorIs(t, door.Client(c).EndDelete(ctx, "photos", remains), listing.ErrNoSuchBucket, "nothing is left")
		for _, err := range c.Buckets(ctx, "", "") {
			require.NoError(t, err)
			require.Fail(t, "it is still on the list")
		}
	}
	require.Len(t, freed, 5)
	require.NoError(t, c.CreateBucket(ctx, "photos"))
	require.NoError(t, photos.Put(ctx, []byte("a"), []byte("burned")))
	require.NoError(t, door.Client(c).EndDelete(ctx, "photos", remains), "another one has the name")
	require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "photos", others), store.Unavailable)
	_, err = photos.Get(ctx, []byte("a"))
	require.NoError(t, err)
}
