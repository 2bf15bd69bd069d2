package mapclient_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// largeMap is a bucket of n ranges, all of it in memory if the cache is large.
func largeMap(tb testing.TB, n int, cacheBytes int64) *mapbench.Map {
	tb.Helper()
	m, err := mapbench.NewMap(context.Background(), n, cacheBytes)
	require.NoError(tb, err)
	if cacheBytes > int64(n)*200 {
		require.NoError(tb, m.ReadAll(context.Background()))
	}
	return m
}

// BenchmarkFind looks random keys up in a map of 1,000,000 ranges that is in
// memory: over all of it, and within 100 of its segments.
func BenchmarkFind(b *testing.B) {
	const n = 1_000_000
	m := largeMap(b, n, 1<<30)
	defer m.Lease.Release()
	ctx := context.Background()
	for _, within := range []int{1, 100, 1000} {
		keys := mapbench.NewKeys(m.Cuts, within*mapbench.SegmentRanges-1)
		b.Run(fmt.Sprintf("segments=%d", within), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			i := 0
			for b.Loop() {
				if err := m.Find(ctx, keys.At(i)); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run(fmt.Sprintf("segments=%d/parallel", within), func(b *testing.B) {
			var start atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				i := int(start.Add(1 << 16))
				for pb.Next() {
					if err := m.Find(ctx, keys.At(i)); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		})
	}
}

// BenchmarkMemory is the yardstick for BenchmarkFind, to be run beside it: one
// read of memory at random, of about as much as lookups within 100 and 1000
// segments touch.
func BenchmarkMemory(b *testing.B) {
	for _, mib := range []int{8, 80} {
		lines := mapbench.NewMemory(mib << 20)
		b.Run(fmt.Sprintf("MiB=%d", mib), func(b *testing.B) {
			defer reportCPU(b)()
			at := uint32(0)
			for b.Loop() {
				at = lines.Next(at)
			}
			runtime.KeepAlive(at)
		})
	}
}

// BenchmarkSortedSlice is the plain way: a binary search in a sorted slice of
// slices, of as many ranges.
func BenchmarkSortedSlice(b *testing.B) {
	cuts := mapbench.Cuts(1_000_000 - 1)
	for _, within := range []int{1, 100, 1000} {
		keys, some := mapbench.NewKeys(cuts, within*mapbench.SegmentRanges-1), cuts[:within*mapbench.SegmentRanges-1]
		b.Run(fmt.Sprintf("segments=%d", within), func(b *testing.B) {
			defer reportCPU(b)()
			i, sum := 0, 0
			for b.Loop() {
				at, _ := slices.BinarySearchFunc(some, keys.At(i), bytes.Compare)
				sum += at
				i++
			}
			runtime.KeepAlive(sum)
		})
	}
}

// BenchmarkFindEvicting has a cache for a tenth of the map, so that most lookups
// load a segment.
func BenchmarkFindEvicting(b *testing.B) {
	m := largeMap(b, 1_000_000, 12<<20)
	defer m.Lease.Release()
	keys := mapbench.NewKeys(m.Cuts, 999_999)
	ctx := context.Background()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := m.Find(ctx, keys.At(i)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkAcquireRelease takes a lease on one bucket, and on one of many.
func BenchmarkAcquireRelease(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1, 10_000} {
		c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{})
		ids := make([]store.BucketID, n)
		for i := range ids {
			ids[i] = store.BucketID(uuid.New())
			_, err := c.Create(ctx, ids[i], nil)
			require.NoError(b, err)
		}
		lease := func(i int) {
			l, err := c.Acquire(ctx, ids[i%n])
			if err != nil {
				b.Fatal(err)
			}
			l.Release()
		}
		b.Run(fmt.Sprintf("buckets=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			i := 0
			for b.Loop() {
				lease(i)
				i += 7919
			}
		})
		b.Run(fmt.Sprintf("buckets=%d/parallel", n), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i += 7919 {
					lease(i)
				}
			})
		})
	}
}

// reportCPU adds the processor time per operation, which others on the machine
// disturb less than the time that passes. It is for one goroutine.
func reportCPU(b *testing.B) (done func()) {
	from := mapbench.ProcessorTime()
	return func() {
		b.ReportMetric(float64(mapbench.ProcessorTime()-from)/float64(b.N), "cpu-ns/op")
	}
}
