package listing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// benchKeys are S3-like names; benchValue is the size of an object's record.
func benchKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i*12/n+1, i*336/n%28+1, i)
	}
	return keys
}

var benchValue = []byte(
	`{"size":123456,"etag":"9e107d9d372bb6826bd81d3542a419d6","modified":1700000000,"type":"image/jpeg"}`,
)

// BenchmarkListPage compares a page of 1,000 through List over pebblestore with
// bare Pebble iteration that copies keys and values out, in turns within one run:
// with 10 ranges in the map, and with 100,000 of which 20 are filled.
func BenchmarkListPage(b *testing.B) {
	for _, ranges := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("ranges=%d", ranges), func(b *testing.B) { benchListPage(b, ranges) })
	}
}

// rig is a client over pebblestore beside bare Pebble with the same options, the
// same keys and values, both reopened, so that what they hold is in files.
type rig struct {
	store  pebblestore.Store
	client *listing.Client
	bucket *listing.Bucket
	db     *pebble.DB
}

func newRig(b *testing.B, o pebblestore.Options, cuts, keys [][]byte) *rig {
	ctx := context.Background()
	dirs := [2]string{b.TempDir(), b.TempDir()}
	x := &rig{}
	for again := range 2 {
		s, err := pebblestore.Open(dirs[0], o)
		require.NoError(b, err)
		x.store = s
		x.client, err = listing.New(s, listing.Options{})
		require.NoError(b, err)
		engine := pebblestore.EngineOptions()
		engine.MemTableSize, engine.Cache, engine.Logger = 64<<20, pebble.NewCache(128<<20), silent{}
		x.db, err = pebble.Open(dirs[1], engine)
		require.NoError(b, err)
		engine.Cache.Unref()
		x.bucket = x.client.Bucket("bench")
		if again == 1 {
			b.Cleanup(func() {
				require.NoError(b, s.Close())
				require.NoError(b, x.db.Close())
			})
			break
		}
		require.NoError(b, x.client.CreateBucket(ctx, "bench", cuts...))
		var entries []listing.Entry
		for i, k := range keys {
			entries = append(entries, listing.Entry{Key: k, Value: benchValue})
			require.NoError(b, x.db.Set(k, benchValue, pebble.NoSync))
			if len(entries) == 10_000 || i == len(keys)-1 {
				require.NoError(b, x.bucket.PutBatch(ctx, entries))
				entries = entries[:0]
			}
		}
		require.NoError(b, s.Close())
		require.NoError(b, x.db.Close())
	}
	return x
}

func benchListPage(b *testing.B, ranges int) {
	const rows, page = 200_000, 1000
	keys := benchKeys(rows)
	filled := min(ranges, 20)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		if i < filled {
			cuts = append(cuts, keys[i*rows/filled])
		} else {
			cuts = append(cuts, fmt.Appendf(nil, "videos/%08d", i))
		}
	}
	x := newRig(b, pebblestore.Options{NoSync: true}, cuts, keys)
	r := rand.New(rand.NewPCG(1, 1))
	var bare, ours []float64
	b.ReportAllocs()
	for b.Loop() {
		// Not across a range's end.
		per := rows / filled
		at := r.IntN(filled)*per + r.IntN(per-page-1)
		begin := time.Now()
		if n := barePage(x.db, keys[at], page); n != page {
			b.Fatal(n)
		}
		middle := time.Now()
		got, err := x.bucket.List(context.Background(), listing.Query{From: keys[at], Limit: page})
		if err != nil || len(got.Items) != page {
			b.Fatal(len(got.Items), err)
		}
		end := time.Now()
		bare = append(bare, float64(middle.Sub(begin)))
		ours = append(ours, float64(end.Sub(middle)))
	}
	report(b, bare, ours, "page")
}

// BenchmarkNewestAcrossReserve reads the newest 1,000 keys of a bucket where 96 empty ranges are cut ahead of them, in
// turns with the same page of a bucket without them.
func BenchmarkNewestAcrossReserve(b *testing.B) {
	const page, rows, ahead = 1000, 5000, 96
	key := func(i int) []byte { return fmt.Appendf(nil, "log/%012d", i) }
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	var cuts [][]byte
	for i := range ahead {
		cuts = append(cuts, key(rows*(i+1)))
	}
	var entries []listing.Entry
	for i := range rows {
		entries = append(entries, listing.Entry{Key: key(i), Value: benchValue})
	}
	buckets := map[string][][]byte{"bare": nil, "reserve": cuts}
	for name, cuts := range buckets {
		require.NoError(b, c.CreateBucket(b.Context(), name, cuts...))
		require.NoError(b, c.Bucket(name).PutBatch(b.Context(), entries))
	}
	took := map[string][]float64{}
	for b.Loop() {
		for name := range buckets {
			begin := time.Now()
			got, err := c.Bucket(name).List(b.Context(), listing.Query{Reverse: true, Limit: page})
			if err != nil || len(got.Items) != page {
				b.Fatal(len(got.Items), err)
			}
			took[name] = append(took[name], float64(time.Since(begin)))
		}
	}
	report(b, took["bare"], took["reserve"], "page")
}

// report prints the medians of both sides and their ratio, which carries from
// one machine to another.
func report(b *testing.B, bare, ours []float64, what string) {
	b.ReportMetric(median(ours)/median(bare), "x-bare")
	b.ReportMetric(median(ours)/1e3, "us/"+what)
	b.ReportMetric(median(bare)/1e3, "bare-us/"+what)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkPut compares synced puts of single entries through Put with bare
// Pebble's, in rounds that take turns. The puts could be given up, as a server's can.
func BenchmarkPut(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			x := newRig(b, pebblestore.Options{}, benchKeys(20)[1:], benchKeys(1000))
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var next atomic.Int64 // new keys each time
			round := func(put func(i int) error) float64 {
				const each = 20
				begin := time.Now()
				var g sync.WaitGroup
				for range workers {
					g.Go(func() {
						for range each {
							if err := put(int(next.Add(1) * 7919 % 10_000_019)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				g.Wait()
				return float64(time.Since(begin)) / float64(workers*each)
			}
			key := func(i int) []byte { return fmt.Appendf(nil, "photos/2024/%02d/IMG_%08d.jpg", i%12, i) }
			var bare, ours []float64
			for b.Loop() {
				bare = append(bare, round(func(i int) error { return x.db.Set(key(i), benchValue, pebble.Sync) }))
				ours = append(ours, round(func(i int) error { return x.bucket.Put(ctx, key(i), benchValue) }))
			}
			report(b, bare, ours, "put")
		})
	}
}

type bareRow struct{ key, value []byte }

// barePage reads a page from a key on.
func barePage(db *pebble.DB, from []byte, n int) int { return len(bareRows(db, from, nil, n)) }

// bareRows reads a page as one would without evenkeel: keys and values copied
// out into a page of their own.
func bareRows(db *pebble.DB, from, to []byte, n int) []bareRow {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil
	}
	defer it.Close()
	rows := make([]bareRow, 0, n)
	arena := make([]byte, 0, n*170)
	for ok := it.First(); ok && len(rows) < n; ok = it.Next() {
		k, v := it.Key(), it.Value()
		at := len(arena)
		arena = append(append(arena, k...), v...)
		rows = append(rows, bareRow{arena[at : at+len(k)], arena[at+len(k):]})
	}
	return rows
}

// silent keeps Pebble's own messages out of the results.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}
