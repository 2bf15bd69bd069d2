package listing_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
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
		c, err := listing.New(s, m, listing.Options{})
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
	_, err := c.Listed(ctx, "b")
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
	c, err := listing.NewEmbedded(m, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	f := &full{Store: m}
	c, err = listing.NewEmbedded(f, listing.Options{})
	require.NoError(t, err)
	b := c.Bucket("b")
	for _, err := range []error{
		b.Put(t.Context(), []byte("k"), nil),
		b.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}}),
	} {
		require.ErrorIs(t, err, store.ErrFull)
		require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
		require.Nil(t, listing.UnderWay(err))
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
