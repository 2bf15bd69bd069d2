package listing_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkPurge deletes a bucket's rows, 10,000 in each range, at once, beside deleting up to 100,000 of another one
// by their keys, and then lists what is empty, beside as many ranges that never had a row. EVENKEEL_PURGE_ROWS sets the
// rows, default 200,000; 100,000,000 take 12 GB of disk.
func BenchmarkPurge(b *testing.B) {
	const each, most = 10_000, 100_000
	rows := 200_000
	if text := os.Getenv("EVENKEEL_PURGE_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	pebble, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, pebble.Close()) })
	s := &tombstones{Store: pebble}
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "sensor/%012d", i) }
	var cuts [][]byte
	for i := each; i < rows; i += each {
		cuts = append(cuts, key(i))
	}
	fill := func(name string, rows int) *listing.Bucket {
		require.NoError(b, c.CreateBucket(b.Context(), name, cuts...))
		entries := make([]listing.Entry, 0, each)
		for i := 0; i < rows; i += each {
			entries = entries[:0]
			for k := range min(each, rows-i) {
				entries = append(entries, listing.Entry{Key: key(i + k), Value: benchValue})
			}
			require.NoError(b, c.Bucket(name).PutBatch(b.Context(), entries))
		}
		return c.Bucket(name)
	}
	scan := func(bucket *listing.Bucket) time.Duration {
		begun := time.Now()
		for item, err := range bucket.All(b.Context(), listing.Query{}) {
			require.NoError(b, err, "%s", item.Key)
			b.Fatal("a key is left")
		}
		return time.Since(begun)
	}
	for n := 0; b.Loop(); n++ {
		names := []string{fmt.Sprint("purged", n), fmt.Sprint("keys", n), fmt.Sprint("never", n)}
		purged, keys, never := fill(names[0], rows), fill(names[1], min(rows, most)), fill(names[2], 0)
		s.deletes.Store(0)
		s.removals.Store(0)
		begun := time.Now()
		require.NoError(b, purged.DeletePrefix(b.Context(), nil))
		took := time.Since(begun)
		b.ReportMetric(took.Seconds(), "s/purge")
		b.ReportMetric(float64(s.deletes.Load()+s.removals.Load()), "tombstones")
		begun = time.Now()
		var g errgroup.Group
		g.SetLimit(64)
		for i := range min(rows, most) {
			g.Go(func() error { return keys.Delete(b.Context(), key(i)) })
		}
		require.NoError(b, g.Wait())
		b.ReportMetric(time.Since(begun).Seconds()*float64(rows)/float64(min(rows, most)), "s/by-keys")
		b.ReportMetric(float64(scan(purged).Microseconds())/float64(len(cuts)+1), "us/purged-range")
		b.ReportMetric(float64(scan(never).Microseconds())/float64(len(cuts)+1), "us/never-range")
		begun = time.Now()
		require.NoError(b, c.DeleteBucket(b.Context(), names[0]))
		b.ReportMetric(time.Since(begun).Seconds(), "s/delete-bucket")
	}
}
