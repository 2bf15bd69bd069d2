package listing_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestAMissingMapClockIsNoEmptyList: where the list of buckets can't be leased,
// there is no telling that it is empty.
func TestAMissingMapClockIsNoEmptyList(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	client := func(clocks int) *listing.Client {
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		c, err := listing.New(mapclient.With(s, m), listing.Options{})
		require.NoError(t, err)
		return c
	}
	require.NoError(t, mapclient.InitClocks(ctx, s, 1))
	require.NoError(t, client(1).CreateBucket(ctx, "b"))

	c := client(mapclient.MaxClocks) // asks a clock that is not there
	var failed error
	for _, err := range c.Buckets(ctx, "", "") {
		failed = err
	}
	require.ErrorIs(t, failed, store.Unavailable)
	_, err := door.Client(c).Listed(ctx, "b")
	require.ErrorIs(t, err, store.Unavailable)
}

// full is a store whose disk is full.
type full struct {
	store.Store
	puts atomic.Int64
}

func (f *full) err() error { return store.Errorf(store.Unavailable, "%w: free some", store.ErrFull) }

func (f *full) Writable() error { return f.err() }

func (f *full) Put(context.Context, store.Partition, ...store.Row) error {
	f.puts.Add(1)
	return f.err()
}

// TestAFullStoreRefuses: what is refused is not tried again, its outcome is known, and a new bucket is
// refused before anything of it is written.
func TestAFullStoreRefuses(t *testing.T) {
	m := memstore.New()
	c, err := listing.New(m, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	f := &full{Store: m}
	c, err = listing.New(f, listing.Options{})
	require.NoError(t, err)
	b := c.Bucket("b")
	for _, err := range []error{
		b.Put(t.Context(), []byte("k"), nil),
		b.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}}),
	} {
		require.ErrorIs(t, err, store.ErrFull)
		require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
		require.Nil(t, door.UnderWay(err))
	}
	require.Equal(t, int64(2), f.puts.Load())
	roots, err := m.Scan(t.Context(), store.Roots, nil, 10)
	require.NoError(t, err)
	require.ErrorIs(t, c.CreateBucket(t.Context(), "new"), store.ErrFull)
	after, err := m.Scan(t.Context(), store.Roots, nil, 10)
	require.NoError(t, err)
	require.Equal(t, roots, after)
	require.NoError(t, b.Delete(t.Context(), []byte("k")))
}

// A name is known to be freed by the record that a deletion left: one without a record may have lost it, and one that
// is on the list may get it back.
func TestANameIsFreedByADeletion(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	is := func(wantVacant, wantFreed bool) {
		t.Helper()
		vacant, freed, err := door.Client(c).Vacant(ctx, "b")
		require.NoError(t, err)
		require.Equal(t, [2]bool{wantVacant, wantFreed}, [2]bool{vacant, freed})
	}
	is(true, false)
	for range 2 {
		require.NoError(t, door.Client(c).CreateWith(ctx, "b", []byte("settings")))
		is(false, false)
		require.NoError(t, c.Bucket("b").Put(ctx, []byte("k"), nil))
		away := store.Errorf(store.Unavailable, "away")
		remains := door.Remains{
			Gone:    func(_, _ []byte) bool { return true },
			Discard: func(context.Context, []byte, []byte) error { return away },
		}
		require.ErrorIs(t, door.Client(c).DeleteBut(ctx, "b", remains), away)
		is(false, false) // deleted, but not at its end
		away = nil
		require.NoError(t, door.Client(c).EndDelete(ctx, "b", remains))
		is(true, true)
	}
	require.NoError(t, c.Enlist(ctx, "b", store.BucketID{1}))
	is(true, false)
	_, _, err = door.Client(c).Vacant(ctx, "")
	require.ErrorIs(t, err, store.InvalidArgument)
}

// serialReads is a store that counts the reads of names at Serial.
type serialReads struct {
	store.Store
	n atomic.Int64
}

func (s *serialReads) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if t == store.Directory && l == store.Serial {
		s.n.Add(1)
	}
	return s.Store.Read(ctx, t, key, l)
}

// Audits ask for the name of each bucket, which costs no rounds of the store's servers where it is taken.
func TestNamesThatAreTakenCostNoSerialRead(t *testing.T) {
	s := &serialReads{Store: memstore.New()}
	c := over(t, s, listing.Options{})
	s.n.Store(0)
	vacant, freed, err := door.Client(c).Vacant(t.Context(), "b")
	require.NoError(t, err)
	require.False(t, vacant || freed)
	require.Zero(t, s.n.Load())
	vacant, _, err = door.Client(c).Vacant(t.Context(), "other")
	require.NoError(t, err)
	require.True(t, vacant)
	require.EqualValues(t, 1, s.n.Load())
}

// A directory that was restored from another moment than roots and list names a bucket that has no root, or one that is
// deleted. The bucket on the list gets its name back, if it has a root that is open; else the name is free.
func TestNamesOfLostBuckets(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for _, listed := range []bool{false, true} {
			w := &world{t: t, ctx: t.Context(), s: memstore.New()}
			var err error
			w.c, err = listing.New(w.s, listing.Options{})
			require.NoError(t, err)
			w.fill()
			w.put("key", "value")
			require.ErrorIs(t, door.Client(w.c).Release(w.ctx, "b"), listing.ErrBucketExists)
			if !listed {
				require.NoError(t, w.c.Bucket("b").Delete(w.ctx, []byte("key")))
				require.NoError(t, w.c.DeleteBucket(w.ctx, "b"))
			}
			other := store.BucketID(uuid.New())
			if deleted {
				_, err := mapclient.Of(w.c).Create(w.ctx, other, nil)
				require.NoError(t, err)
				if listed {
					w.name("b", other)
					require.ErrorIs(t, door.Client(w.c).Restore(w.ctx, "b"), listing.ErrBucketExists, "both are open")
				}
				w.state(other, partmap.Closing)
				w.state(other, partmap.Deleted)
			}
			w.name("b", other)
			switch {
			case !deleted:
				require.NoError(t, door.Client(w.c).Release(w.ctx, "b"))
			case listed:
				require.NoError(t, door.Client(w.c).Restore(w.ctx, "b"))
			default:
				require.ErrorIs(t, door.Client(w.c).Restore(w.ctx, "b"), listing.ErrNoSuchBucket)
			}
			if listed {
				require.Equal(t, w.id, w.owner("b").ID)
				e, err := w.c.Bucket("b").Get(w.ctx, []byte("key"))
				require.NoError(t, err)
				require.Equal(t, "value", string(e.Value))
			} else {
				require.NoError(t, w.c.CreateBucket(w.ctx, "b"))
			}
		}
	}
}
