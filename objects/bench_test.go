package objects_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkRatios measures what objects cost beside plain entries, in turns, so that what else the machine does hits
// all alike. Of pages it reports the processor time, with what collecting their garbage takes (-x), and the least time
// of one of many (-least-x); of puts the least time. All rows are in memory first, where Pebble collects what is new,
// then in its tables. Puts are measured without syncs, then with them, as they are by default. Plain pages are of a
// bucket with as many rows as objects, and of one with as many rows as versions: the larger one is what a page of
// versions is compared with. What bare Pebble needs for one search per object, among as many rows in tables, is the
// least for a page of the latest of many versions where nothing tells where the next object begins. Run it with
// -benchtime 1x.
func BenchmarkRatios(b *testing.B) {
	const keys, most = 1500, 100
	ctx, body, dir := b.Context(), bytes.Repeat([]byte("x"), 100), b.TempDir()
	value := append(bytes.Clone(body), "a record's metadata, some 30 B"...)
	key := func(i int) []byte { return fmt.Appendf(nil, "2026/11/23/object-%06d.jpg", i) }
	version := func(i int) []byte { return fmt.Appendf(key(i/most), " version %06d", i) } // as long as that of a row
	put := func(bucket *objects.Bucket, key []byte) {
		_, err := bucket.Put(ctx, key, bytes.NewReader(body), objects.Meta{Size: -1})
		require.NoError(b, err)
	}
	bare, err := pebble.Open(b.TempDir(), pebblestore.EngineOptions())
	require.NoError(b, err)
	defer bare.Close()
	for i := range keys * most {
		require.NoError(b,
			bare.Set(append(make([]byte, 1+storekit.PartitionBytes), version(i)...), value, pebble.NoSync))
	}
	require.NoError(b, bare.Flush())
	for _, stage := range []struct {
		name string
		o    pebblestore.Options
	}{{"in memory, no sync", pebblestore.Options{NoSync: true}}, {"in tables, sync", pebblestore.Options{}}} {
		s, err := pebblestore.Open(dir, stage.o)
		require.NoError(b, err)
		c, err := listing.New(s, listing.Options{})
		require.NoError(b, err)
		o, err := objects.New(c, &blobsInMemory{m: map[string][]byte{}}, objects.Options{})
		require.NoError(b, err)
		plain, large := c.Bucket("plain"), c.Bucket("large")
		buckets := map[int]*objects.Bucket{}
		for _, versions := range []int{1, 10, most} {
			buckets[versions] = o.Bucket(fmt.Sprintf("objects-%d", versions), objects.Enabled)
		}
		puts := o.Bucket("puts", objects.Enabled) // not into those that are listed
		if stage.o.NoSync {
			require.NoError(b, c.CreateBucket(ctx, "puts"))
			require.NoError(b, c.CreateBucket(ctx, plain.Name()))
			require.NoError(b, c.CreateBucket(ctx, large.Name()))
			for i := range keys {
				require.NoError(b, plain.Put(ctx, key(i), value))
			}
			for i := range keys * most {
				require.NoError(b, large.Put(ctx, version(i), value))
			}
			for versions, bucket := range buckets {
				require.NoError(b, c.CreateBucket(ctx, fmt.Sprintf("objects-%d", versions)))
				for i := range keys * versions {
					put(bucket, key(i/versions))
				}
			}
		}
		page := func(of *listing.Bucket) func() {
			return func() {
				page, err := of.List(ctx, listing.Query{})
				require.True(b, err == nil && len(page.Items) == 1000)
			}
		}
		latest := func(versions int) func() {
			return func() {
				page, err := buckets[versions].List(ctx, objects.Query{})
				require.True(b, err == nil && len(page.Items) == 1000)
			}
		}
		type kind struct {
			name string
			do   func()
			over int // the place of what it is compared with
		}
		pages := []kind{
			{"plain page", page(plain), 0},
			{"plain page of many", page(large), 0},
			{"latest of 1", latest(1), 0},
			{"latest of 10", latest(10), 0},
			{"latest of 100", latest(most), 0},
			{"versions", func() {
				page, err := buckets[most].ListVersions(ctx, objects.Query{})
				require.True(b, err == nil && len(page.Items) == 1000)
			}, 1},
			{"bare searches", func() { searches(b, bare) }, 0},
		}
		last := len(pages) - 1 // it makes no garbage
		puts300 := []kind{
			{"plain put", func() {
				for i := range 300 {
					require.NoError(b, plain.Put(ctx, key(i), value))
				}
			}, 0},
			{"put", func() {
				for i := range 300 {
					put(puts, key(i))
				}
			}, 0},
		}
		b.Run(stage.name, func(b *testing.B) {
			report := func(kinds []kind, of []time.Duration, unit string) {
				for i, k := range kinds {
					b.ReportMetric(float64(of[i])/float64(of[k.over]), strings.ReplaceAll(k.name, " ", "-")+unit)
				}
			}
			least := func(kinds []kind, rounds int) []time.Duration {
				least := make([]time.Duration, len(kinds))
				for range rounds {
					for i, k := range kinds {
						begun := time.Now()
						k.do()
						if d := time.Since(begun); least[i] == 0 || d < least[i] {
							least[i] = d
						}
					}
				}
				return least
			}
			for b.Loop() {
				used := make([]time.Duration, len(pages))
				runtime.GC() // what puts left
				for range 40 {
					for i, k := range pages[:last] {
						begun := processorTime(b)
						for range 250 { // that makes garbage to be collected some times
							k.do()
						}
						used[i] += processorTime(b) - begun
					}
				}
				report(pages[:last], used, "-x")
				one := least(pages, 60)
				report(pages, one, "-least-x")
				b.ReportMetric(float64(one[0].Microseconds()), "µs/plain-page")
				one = least(puts300, 15)
				report(puts300, one, "-x")
				b.ReportMetric(float64(one[0].Microseconds())/300, "µs/plain-put")
			}
		})
		require.NoError(b, s.Close())
	}
}

// processorTime returns what this process has used of all processors.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// searches finds the first of each 1,000 stretches of rows by one iterator of Pebble.
func searches(b *testing.B, db *pebble.DB) {
	it, err := db.NewIter(nil)
	require.NoError(b, err)
	place := make([]byte, 1+storekit.PartitionBytes, 100)
	more := it.First()
	for range 1000 {
		require.True(b, more)
		place = append(place[:0], it.Key()...)
		place = place[:len(place)-6] // the version's number
		place = append(place, 0xff)
		more = it.SeekGE(place)
	}
	require.NoError(b, it.Close())
}

// BenchmarkPages measures pages of 1,000 of the newest of 1, 10 and 100 versions, beside a plain page
// of as many entries with values as long as the rows have; and puts of 100 bytes.
func BenchmarkPages(b *testing.B) {
	const keys = 3000
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(b, err)
	defer s.Close()
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	o, err := objects.New(c, &blobsInMemory{m: map[string][]byte{}}, objects.Options{})
	require.NoError(b, err)
	ctx, body := b.Context(), bytes.Repeat([]byte("x"), 100)
	key := func(i int) []byte { return fmt.Appendf(nil, "2026/11/23/object-%06d.jpg", i) }

	require.NoError(b, c.CreateBucket(ctx, "plain"))
	plain := c.Bucket("plain")
	for i := range keys {
		require.NoError(b, plain.Put(ctx, key(i), append(body, "a record's metadata, some 30 B"...)))
	}
	b.Run("plain page", func(b *testing.B) {
		for b.Loop() {
			page, err := plain.List(ctx, listing.Query{})
			if err != nil || len(page.Items) != 1000 {
				b.Fatal(len(page.Items), err)
			}
		}
	})
	b.Run("plain put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			require.NoError(b, plain.Put(ctx, key(i%keys), append(body, "a record's metadata, some 30 B"...)))
		}
	})
	for _, versions := range []int{1, 10, 100} {
		name := fmt.Sprintf("v%d", versions)
		require.NoError(b, c.CreateBucket(ctx, name))
		bucket := o.Bucket(name, objects.Enabled)
		for i := range keys {
			for range versions {
				_, err := bucket.Put(ctx, key(i), bytes.NewReader(body), objects.Meta{Size: -1})
				require.NoError(b, err)
			}
		}
		b.Run(fmt.Sprintf("latest of %d", versions), func(b *testing.B) {
			for b.Loop() {
				page, err := bucket.List(ctx, objects.Query{})
				if err != nil || len(page.Items) != 1000 {
					b.Fatal(len(page.Items), err)
				}
			}
		})
		b.Run(fmt.Sprintf("versions of %d", versions), func(b *testing.B) {
			for b.Loop() {
				page, err := bucket.ListVersions(ctx, objects.Query{})
				if err != nil || len(page.Items) != 1000 {
					b.Fatal(len(page.Items), err)
				}
			}
		})
	}
	bucket := o.Bucket("v1", objects.Enabled)
	b.Run("put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := bucket.Put(ctx, key(i%keys), bytes.NewReader(body), objects.Meta{Size: -1})
			require.NoError(b, err)
		}
	})
}

// BenchmarkRows measures how many rows a second a cleaner and an audit look at, where nothing is due.
func BenchmarkRows(b *testing.B) {
	const rows = 50_000
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(b, err)
	defer s.Close()
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	o, err := objects.New(c, &blobsInMemory{m: map[string][]byte{}}, objects.Options{InlineBytes: 50})
	require.NoError(b, err)
	ctx := b.Context()
	require.NoError(b, o.CreateBucket(ctx, "b"))
	require.NoError(b, o.SetStatus(ctx, "b", objects.Enabled))
	bucket := o.Bucket("b", objects.Enabled)
	for i := range rows {
		body := bytes.NewReader(make([]byte, 30+30*(i%2))) // every other one has a blob
		_, err := bucket.Put(ctx, fmt.Appendf(nil, "2026/11/23/object-%06d.jpg", i/3), body, objects.Meta{Size: -1})
		require.NoError(b, err)
	}
	cleaner, err := care.OfBucket(bucket).Cleaner(care.CleanOptions{})
	require.NoError(b, err)
	for _, kind := range []struct {
		name string
		do   func() error
	}{
		{"pass", func() error { _, err := cleaner.Pass(ctx); return err }},
		{"audit", func() error {
			return care.OfBucket(bucket).Audit(ctx, "", nil, func(a care.Audited) error {
				require.Empty(b, a.Findings)
				return nil
			})
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, kind.do())
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
