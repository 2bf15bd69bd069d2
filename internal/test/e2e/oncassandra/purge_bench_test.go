package oncassandra

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
)

// BenchmarkPurge deletes a bucket's rows, 10,000 in each range, at once, beside deleting up to 20,000 of another one by
// their keys, and then lists what is empty, beside as many ranges that never had a row, and again once a balancer that
// looks at them every ten seconds has joined them. EVENKEEL_PURGE_ROWS sets the rows, default 200,000.
func BenchmarkPurge(b *testing.B) {
	const each, most = 10_000, 20_000
	rows := 200_000
	if text := os.Getenv("EVENKEEL_PURGE_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	x := newRig(b)
	ctx := b.Context()
	counts := countbook.NewMemory(nil)
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	b.Cleanup(func() { _ = recorder.Close(context.Background()) })
	x.client = harness.Client(b, x.store, x.maps, listing.Options{Recorder: recorder})
	key := func(i int) []byte { return fmt.Appendf(nil, "sensor/%012d", i) }
	var cuts [][]byte
	for i := each; i < rows; i += each {
		cuts = append(cuts, key(i))
	}
	fill := func(name string, rows int) *listing.Bucket {
		require.NoError(b, x.client.CreateBucket(ctx, name, cuts...))
		entries := make([]listing.Entry, 0, each)
		for i := 0; i < rows; i += each {
			entries = entries[:0]
			for k := range min(each, rows-i) {
				entries = append(entries, listing.Entry{Key: key(i + k), Value: benchValue})
			}
			require.NoError(b, x.client.Bucket(name).PutBatch(ctx, entries))
		}
		return x.client.Bucket(name)
	}
	scan := func(bucket *listing.Bucket) float64 {
		begun := time.Now()
		for item, err := range bucket.All(ctx, listing.Query{}) {
			require.NoError(b, err, "%s", item.Key)
			b.Fatal("a key is left")
		}
		return float64(time.Since(begun).Microseconds()) / float64(len(cuts)+1)
	}
	for n := 0; b.Loop(); n++ {
		name := fmt.Sprint("purged", n)
		purged, keys := fill(name, rows), fill(fmt.Sprint("keys", n), min(rows, most))
		never := fill(fmt.Sprint("never", n), 0)
		begun := time.Now()
		require.NoError(b, purged.DeletePrefix(ctx, nil))
		b.ReportMetric(time.Since(begun).Seconds(), "s/purge")
		begun = time.Now()
		var g errgroup.Group
		g.SetLimit(64)
		for i := range min(rows, most) {
			g.Go(func() error { return keys.Delete(ctx, key(i)) })
		}
		require.NoError(b, g.Wait())
		b.ReportMetric(time.Since(begun).Seconds()*float64(rows)/float64(min(rows, most)), "s/by-keys")
		b.ReportMetric(scan(purged), "us/purged-range")
		b.ReportMetric(scan(never), "us/never-range")
		b.ReportMetric(balanced(b, x, counts, name).Seconds(), "s/joined")
		b.ReportMetric(scan(purged), "us/joined-range")
		begun = time.Now()
		require.NoError(b, x.client.DeleteBucket(ctx, name))
		b.ReportMetric(time.Since(begun).Seconds(), "s/delete-bucket")
	}
}

// balanced lets a balancer work until a bucket has only a few ranges left, and returns how long that took.
func balanced(b *testing.B, x *rig, counts counter.Backend, name string) time.Duration {
	o := balancer.For(20_000, 0, 10*time.Second, engine.Wait(mapclient.DefaultLease))
	r := engine.New(engine.Options{Store: x.store, Buckets: x.client, Balance: &o, Counts: counts})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	begun := time.Now()
	harness.Eventually(b, "ranges are joined", func() bool { return harness.Partitions(b, x.client, name) <= 3 })
	return time.Since(begun)
}
