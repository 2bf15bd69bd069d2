package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// albums are n keys in so many directories.
func albums(n, directories int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "album-%05d/2024/IMG_%08d.jpg", i*directories/n, i)
	}
	return keys
}

// rowCounts counts slices and the rows that they return.
type rowCounts struct {
	store.Store
	slices, rows atomic.Int64
}

func (c *rowCounts) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := c.Store.Slice(ctx, p, b, o)
	c.slices.Add(1)
	c.rows.Add(int64(len(page.Rows)))
	return page, err
}

// TestCommonPrefixesCostNoKeys: what a delimiter listing reads is in proportion to
// the common prefixes that it lists, however many keys they stand for; forwards and
// in reverse.
func TestCommonPrefixesCostNoKeys(t *testing.T) {
	const directories = 40
	read := func(n int, reverse bool) (slices, rows int64) {
		t.Helper()
		s := &rowCounts{Store: memstore.New()}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		keys := albums(n, directories)
		require.NoError(t, c.CreateBucket(t.Context(), "b", keys[n/3], keys[n/2]))
		var entries []listing.Entry
		for _, k := range keys {
			entries = append(entries, listing.Entry{Key: k})
		}
		b := c.Bucket("b")
		require.NoError(t, b.PutBatch(t.Context(), entries))
		s.slices.Store(0)
		s.rows.Store(0)
		page, err := b.List(t.Context(), listing.Query{Delimiter: []byte("/"), Reverse: reverse})
		require.NoError(t, err)
		require.Len(t, page.Items, directories)
		return s.slices.Load(), s.rows.Load()
	}
	for _, reverse := range []bool{false, true} {
		slices, rows := read(directories*1000, reverse)
		t.Logf("reverse %v: %d slices, %d rows for %d common prefixes of 1,000 keys each", reverse, slices, rows,
			directories)
		require.LessOrEqual(t, slices, int64(directories+10))
		require.LessOrEqual(t, rows, int64(8*directories))
		fewer, fewerRows := read(directories*250, reverse)
		require.LessOrEqual(t, slices, fewer+10)
		require.LessOrEqual(t, rows, fewerRows+100)
		// Where a prefix stands for a few keys, reading on is cheaper than a read more.
		slices, rows = read(directories*10, reverse)
		t.Logf("reverse %v: %d slices, %d rows for %d common prefixes of 10 keys each", reverse, slices, rows,
			directories)
		require.LessOrEqual(t, slices, int64(directories/5))
		require.LessOrEqual(t, rows, int64(11*directories))
	}
}

// loaded is a bucket over pebblestore, reopened and counting, beside bare Pebble
// with the same keys.
func loaded(b *testing.B, cuts, keys [][]byte) (*rig, *rowCounts) {
	x := newRig(b, pebblestore.Options{NoSync: true}, cuts, keys)
	counts := &rowCounts{Store: x.store}
	c, err := listing.New(counts, listing.Options{})
	require.NoError(b, err)
	x.client, x.bucket = c, c.Bucket("bench")
	return x, counts
}

// BenchmarkCommonPrefixes lists common prefixes, in turns with bare Pebble that
// seeks from one to the next by one iterator: of 1,000 directories with more and
// more keys in them, and of a tenth as many directories.
func BenchmarkCommonPrefixes(b *testing.B) {
	for _, c := range []struct{ directories, keys int }{{1000, 3_000}, {1000, 10_000}, {1000, 30_000}, {1000, 100_000},
		{1000, 1_000_000}, {100, 1_000_000}} {
		b.Run(fmt.Sprintf("prefixes=%d/keys=%d", c.directories, c.keys), func(b *testing.B) {
			keys := albums(c.keys, c.directories)
			x, counts := loaded(b, [][]byte{keys[c.keys/3], keys[c.keys/2]}, keys)
			var ours, bare []float64
			b.ReportAllocs()
			for b.Loop() {
				begun := time.Now()
				page, err := x.bucket.List(context.Background(), listing.Query{Delimiter: []byte("/")})
				if err != nil || len(page.Items) != c.directories {
					b.Fatal(len(page.Items), err)
				}
				middle := time.Now()
				if n := bareCommonPrefixes(x.db); n != c.directories {
					b.Fatal(n)
				}
				ours, bare = append(ours, float64(middle.Sub(begun))), append(bare, float64(time.Since(middle)))
			}
			n := float64(len(ours))
			report(b, bare, ours, "list")
			b.ReportMetric(float64(counts.slices.Load())/n, "slices/list")
			b.ReportMetric(float64(counts.rows.Load())/n, "rows/list")
		})
	}
}

func bareCommonPrefixes(db *pebble.DB) int {
	it, err := db.NewIter(nil)
	if err != nil {
		return 0
	}
	defer it.Close()
	var found [][]byte
	for ok := it.First(); ok; {
		key := it.Key()
		end := bytes.IndexByte(key, '/') + 1
		found = append(found, bytes.Clone(key[:end]))
		next := bytes.Clone(key[:end])
		next[end-1]++
		ok = it.SeekGE(next)
	}
	return len(found)
}

// BenchmarkParallelScan reads a bucket through, each part between two SplitPoints
// by a goroutine of its own, in turns with bare Pebble that reads the same parts
// by as many goroutines in pages of 1,000.
func BenchmarkParallelScan(b *testing.B) {
	const n, ranges = 400_000, 20
	keys := benchKeys(n)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, keys[i*n/ranges])
	}
	x := newRig(b, pebblestore.Options{NoSync: true}, cuts, keys)
	for _, workers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			ctx := context.Background()
			each := func(points [][]byte, read func(from, to []byte) (int, error)) float64 {
				var rows atomic.Int64
				begun := time.Now()
				var g errgroup.Group
				ends := append(slices.Clone(points), nil)
				var from []byte
				for _, to := range ends {
					g.Go(func(from []byte) func() error {
						return func() error {
							got, err := read(from, to)
							rows.Add(int64(got))
							return err
						}
					}(from))
					from = to
				}
				if err := g.Wait(); err != nil || rows.Load() != n {
					b.Fatal(rows.Load(), err)
				}
				return float64(time.Since(begun))
			}
			var ours, bare []float64
			for b.Loop() {
				begun := time.Now()
				points, err := x.bucket.SplitPoints(ctx, listing.Query{}, workers)
				if err != nil || len(points) != workers-1 {
					b.Fatal(len(points), err)
				}
				split := float64(time.Since(begun))
				ours = append(ours, split+each(points, func(from, to []byte) (rows int, err error) {
					for _, err := range x.bucket.All(ctx, listing.Query{From: from, To: to}) {
						if err != nil {
							return rows, err
						}
						rows++
					}
					return rows, nil
				}))
				bare = append(bare, each(points, func(from, to []byte) (int, error) {
					return bareScan(x.db, from, to), nil
				}))
			}
			report(b, bare, ours, "scan")
		})
	}
}

// bareScan reads all between two keys in pages of 1,000, copied out.
func bareScan(db *pebble.DB, from, to []byte) (n int) {
	for {
		rows := bareRows(db, from, to, 1000)
		n += len(rows)
		if len(rows) < 1000 {
			return n
		}
		from = append(bytes.Clone(rows[len(rows)-1].key), 0)
	}
}
