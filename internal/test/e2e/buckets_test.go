package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkManyBuckets creates b.N buckets in a data directory, lists them, and
// uses some of each part of the list. For a million:
//
//	go test ./internal/test/e2e -run '^$' -bench ManyBuckets -benchtime 1000000x
func BenchmarkManyBuckets(b *testing.B) {
	ctx := context.Background()
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	name := func(i int) string { return fmt.Sprintf("tenant-%08d", i) }

	b.ResetTimer()
	var g errgroup.Group
	g.SetLimit(256)
	for i := range b.N {
		g.Go(func() error { return c.CreateBucket(ctx, name(i)) })
	}
	require.NoError(b, g.Wait())
	created := b.Elapsed()
	b.ReportMetric(float64(b.N)/created.Seconds(), "buckets/s")

	listed := 0
	for info, err := range c.Buckets(ctx, "", "") {
		require.NoError(b, err)
		require.Equal(b, name(listed), info.Name)
		listed++
	}
	require.Equal(b, b.N, listed)
	b.ReportMetric(float64(b.N)/(b.Elapsed()-created).Seconds(), "listed/s")
	b.StopTimer()

	for range min(b.N, 20_000) {
		bucket := c.Bucket(name(rand.IntN(b.N)))
		require.NoError(b, bucket.Put(ctx, []byte("key"), []byte(bucket.Name())))
		page, err := bucket.List(ctx, listing.Query{})
		require.NoError(b, err)
		require.Len(b, page.Items, 1)
		require.Equal(b, bucket.Name(), string(page.Items[0].Value))
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	runtime.KeepAlive(c) // what it remembers is part of the figure
}
