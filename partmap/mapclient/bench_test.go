package mapclient_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// longCuts makes n ascending cuts of 40 bytes.
func longCuts(n int) [][]byte {
	cuts := make([][]byte, n)
	for i := range cuts {
		cuts[i] = strconv.AppendInt([]byte("tenant-000042/photos/2024-08/"), int64(1e10+i*1000), 10)
	}
	return cuts
}

// largeMap is a bucket of n ranges, all of it in memory.
func largeMap(tb testing.TB, n int, cacheBytes int64) (*mapclient.Client, *mapclient.Lease, [][]byte) {
	tb.Helper()
	ctx := context.Background()
	c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{CacheBytes: cacheBytes})
	id := store.BucketID(uuid.New())
	cuts := longCuts(n - 1)
	root, err := c.Create(ctx, id, cuts)
	require.NoError(tb, err)
	l, err := c.Acquire(ctx, id)
	require.NoError(tb, err)
	if cacheBytes > int64(n)*200 {
		for _, err := range c.Ranges(ctx, root, nil) {
			require.NoError(tb, err)
		}
	}
	return c, l, cuts
}

// randomKeys are as long as cuts, a little above some of the first within of
// them, in random order; in one array, so that reading the key costs little.
type randomKeys []byte

const keyBytes, keyCount = 40, 1 << 18

func newRandomKeys(cuts [][]byte, within int) randomKeys {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make(randomKeys, 0, keyBytes*keyCount)
	for range keyCount {
		keys = append(keys, cuts[rng.IntN(within)]...)
		keys[len(keys)-1] = '5'
	}
	return keys
}

func (k randomKeys) at(i int) []byte {
	i %= keyCount
	return k[i*keyBytes : (i+1)*keyBytes]
}

// BenchmarkFind looks random keys up in a map of 1,000,000 ranges that is in
// memory: over all of it, and within 100 of its segments.
func BenchmarkFind(b *testing.B) {
	const n = 1_000_000
	c, l, cuts := largeMap(b, n, 1<<30)
	defer l.Release()
	ctx := context.Background()
	for _, within := range []int{1, 100, 1000} {
		keys := newRandomKeys(cuts, within*1000-1)
		b.Run(fmt.Sprintf("segments=%d", within), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			i := 0
			for b.Loop() {
				if _, err := c.Find(ctx, l, keys.at(i)); err != nil {
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
					if _, err := c.Find(ctx, l, keys.at(i)); err != nil {
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
// segments touch. A lookup can't do with less than two that depend on each other:
// where is the entry, and what is in it.
func BenchmarkMemory(b *testing.B) {
	for _, mib := range []int{8, 80} {
		lines := make([][16]uint32, mib<<20/64)
		order := rand.New(rand.NewPCG(1, 3)).Perm(len(lines))
		for i, at := range order {
			lines[at][0] = uint32(order[(i+1)%len(order)])
		}
		b.Run(fmt.Sprintf("MiB=%d", mib), func(b *testing.B) {
			defer reportCPU(b)()
			at := uint32(0)
			for b.Loop() {
				at = lines[at][0]
			}
			runtime.KeepAlive(at)
		})
	}
}

// BenchmarkSortedSlice is the plain way: a binary search in a sorted slice of
// slices, of as many ranges.
func BenchmarkSortedSlice(b *testing.B) {
	cuts := longCuts(1_000_000 - 1)
	for _, within := range []int{1, 100, 1000} {
		keys, some := newRandomKeys(cuts, within*1000-1), cuts[:within*1000-1]
		b.Run(fmt.Sprintf("segments=%d", within), func(b *testing.B) {
			defer reportCPU(b)()
			i, sum := 0, 0
			for b.Loop() {
				at, _ := slices.BinarySearchFunc(some, keys.at(i), bytes.Compare)
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
	c, l, cuts := largeMap(b, 1_000_000, 12<<20)
	defer l.Release()
	keys := newRandomKeys(cuts, 999_999)
	ctx := context.Background()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := c.Find(ctx, l, keys.at(i)); err != nil {
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
	cpu := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	from := cpu()
	return func() { b.ReportMetric(float64(cpu()-from)/float64(b.N), "cpu-ns/op") }
}
