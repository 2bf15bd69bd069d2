package mapclient_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// TestNodeMemoryIsBounded: a map of a million ranges, read all over, takes no more
// memory than the cache may have, and what the cache believes to hold is true.
func TestNodeMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("a million ranges")
	}
	const n, bound = 1_000_000, 16 << 20
	m := largeMap(t, n, bound)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 1))
	before, counted := mapbench.Heap(), m.Client.Usage().NodeBytes
	for range 1500 {
		require.NoError(t, m.Find(ctx, m.Cuts[rng.IntN(len(m.Cuts))]))
	}
	u := m.Client.Usage()
	grown := mapbench.Heap() - before
	t.Logf(
		"%d ranges: cache of %d nodes, %.1f MiB counted, heap grew by %.1f MiB, bound %.1f MiB", n, u.Nodes, mib(u.NodeBytes),
		mib(grown), mib(bound),
	)
	require.LessOrEqual(t, u.NodeBytes, int64(bound))
	require.Greater(t, u.NodeBytes, int64(bound)*9/10, "the bound is used")
	require.InDelta(t, u.NodeBytes-counted, grown, bound/10, "what is counted is what is there")
	m.Lease.Release()
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// everyBucket has a root for any bucket id, with a few ranges.
type everyBucket struct{ mapclient.Store }

func (everyBucket) Read(_ context.Context, _ store.Table, key []byte, _ store.Level) (store.Record, error) {
	entries := make([]partmap.Entry, 4)
	for i := range entries {
		entries[i].Partition = store.PartitionID{byte(i + 1)}
		if i > 0 {
			entries[i].Start = []byte{byte(i), 'a', 'b'}
		}
	}
	c, err := partmap.New(store.BucketID(key), 0, entries, partmap.Stamp{Token: store.Token{1}})
	if err != nil {
		return store.Record{}, err
	}
	return partmap.EncodeRoot(c.Next)
}

// visitBuckets takes and gives back a lease in each of n buckets, and keeps some.
func visitBuckets(tb testing.TB, c *mapclient.Client, n, keepEach int) (kept []*mapclient.Lease) {
	ctx := context.Background()
	for i := range n {
		id := store.BucketID(uuid.New())
		l, err := c.Acquire(ctx, id)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := c.Find(ctx, l, []byte{2, 'x'}); err != nil {
			tb.Fatal(err)
		}
		if i%keepEach == 0 {
			kept = append(kept, l)
			continue
		}
		l.Release()
	}
	return kept
}

// TestBucketMemoryIsBounded: many buckets take no more memory than roots may
// have; with leases, no more than those beside.
func TestBucketMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("many buckets")
	}
	const n, bound = 15_000, 4 << 20
	c := mapclient.NewEmbedded(everyBucket{}, mapclient.Options{})
	mapclient.LimitRoots(c, bound)
	before := mapbench.Heap()
	kept := visitBuckets(t, c, n, n+1)
	kept = append(kept, visitBuckets(t, c, n, 1000)...)
	u := c.Usage()
	grown := mapbench.Heap() - before
	t.Logf(
		"%d buckets seen, %d leased: %d kept in memory, %.1f MiB counted, heap grew by %.1f MiB, bound %.1f MiB", 2*n,
		len(kept), u.Buckets, mib(u.BucketBytes), mib(grown), mib(bound),
	)
	require.LessOrEqual(t, u.BucketBytes, int64(bound))
	require.Greater(t, u.BucketBytes, int64(bound)*9/10)
	require.InDelta(t, u.BucketBytes, grown, bound/4)
	for _, l := range kept {
		require.True(t, l.Valid())
		l.Release()
	}
	runtime.KeepAlive(c)
}

// BenchmarkMillionBuckets visits a million buckets and reports the memory.
func BenchmarkMillionBuckets(b *testing.B) {
	for b.Loop() {
		c := mapclient.NewEmbedded(everyBucket{}, mapclient.Options{})
		before := mapbench.Heap()
		visitBuckets(b, c, 1_000_000, 2_000_000)
		b.ReportMetric(mib(mapbench.Heap()-before), "heap-MiB")
		b.ReportMetric(float64(c.Usage().Buckets), "buckets-kept")
		runtime.KeepAlive(c)
	}
}
