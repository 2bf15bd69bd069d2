package listing_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// readCounts counts what is read of a store.
type readCounts struct {
	store.Store
	roots, nodes, others, slices atomic.Int64
}

func (c *readCounts) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if t == store.Roots {
		c.roots.Add(1)
	} else {
		c.others.Add(1)
	}
	return c.Store.Read(ctx, t, key, l)
}

func (c *readCounts) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	c.nodes.Add(1)
	return c.Store.Node(ctx, b, id)
}

func (c *readCounts) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	c.slices.Add(1)
	return c.Store.Slice(ctx, p, b, o)
}

// Of a bucket of many ranges a process that has just started reads the root, an
// index node and a segment, and then the page.
func TestAColdFirstPageReadsTheMapThreeTimes(t *testing.T) {
	ranges := 250_000
	if testing.Short() {
		ranges = 50_000
	}
	cuts := make([][]byte, ranges-1)
	for i := range cuts {
		cuts[i] = fmt.Appendf(nil, "photos/2024/%02d/IMG_%08d.jpg", i/100_000+1, i)
	}
	s := memstore.New()
	require.NoError(t, mapclient.InitClocks(t.Context(), s, 2))
	open := func(s store.Store) *listing.Bucket {
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 2})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		c, err := listing.New(mapclient.With(s, m), listing.Options{})
		require.NoError(t, err)
		return c.Bucket("many")
	}
	{
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 2})
		require.NoError(t, err)
		defer m.Close()
		c, err := listing.New(mapclient.With(s, m), listing.Options{})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(t.Context(), "many", cuts...))
	}
	at := cuts[ranges/2]
	b := open(s)
	for i := range 20 {
		require.NoError(t, b.Put(t.Context(), fmt.Appendf(at[:len(at):len(at)], "/%02d", i), nil))
	}
	for name, q := range map[string]listing.Query{
		"forwards": {From: at, Limit: 10},
		"reverse":  {To: cuts[ranges/2+1], Limit: 10, Reverse: true},
	} {
		cold := &readCounts{Store: s}
		page, err := open(cold).List(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, page.Items, 10)
		require.LessOrEqual(t, cold.roots.Load()+cold.nodes.Load(), int64(3), name)
		require.EqualValues(t, 1, cold.slices.Load(), name)
		require.LessOrEqual(t, cold.others.Load(), int64(2), "%s: the name and a map clock", name)
	}
}
