package listing_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var update = flag.Bool("update", false, "rewrite testdata/costs.txt")

// paced is a store whose slices take between one and two milliseconds of the time of a
// bubble, as their bounds tell: so it is certain which of several comes first.
type paced struct{ rowCounts }

func (s *paced) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %v %q %d", b.Start, b.StartExclusive, b.End, o.Limit)
	time.Sleep(time.Millisecond + time.Duration(h.Sum64()%1_000_000))
	return s.rowCounts.Slice(ctx, p, b, o)
}

// sampled tells exactly where the rows of ranges lie, but for those of which it knows nothing.
type sampled struct {
	keys   [][]byte
	starts map[store.PartitionID]int // of ranges: the places of their first keys
	ends   map[store.PartitionID]int
}

func (s *sampled) Stats(_ context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	out := make([]counter.Stats, len(partitions))
	for i, p := range partitions {
		n := s.ends[p.ID] - s.starts[p.ID]
		out[i] = counter.Stats{Partition: p, Known: n%3 != 0, Rows: int64(n)}
	}
	return out, nil
}

func (s *sampled) Quanta(_ context.Context, p store.Partition) (out []counter.Quantum, err error) {
	for i := s.starts[p.ID]; i < s.ends[p.ID]; i += 16 {
		q := counter.Quantum{Key: s.keys[i], Rows: int64(min(16, s.ends[p.ID]-i))}
		if i == s.starts[p.ID] {
			q.Key = nil
		}
		out = append(out, q)
	}
	return out, nil
}

// TestCostsOfPagesAndSplits: what these pages and points cost, to the read, and where
// the points are. No answer depends on it, so other numbers are no mistake by themselves:
// look whether they are worse, and then rewrite the file with -update.
func TestCostsOfPagesAndSplits(t *testing.T) {
	race.Skip(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("floating-point numbers are rounded in another way")
	}
	r := rand.New(rand.NewPCG(1, 1))
	word := func(int) string {
		var b strings.Builder
		for range 2 + r.IntN(8) {
			b.WriteByte("aaabcdeeefghiiijklmnnnooopqrsssttuvwxyz-"[r.IntN(40)])
		}
		return b.String()
	}
	date := func(i int) string { return time.Date(2022, 1, 1+i, 0, 0, 0, 0, time.UTC).Format("2006-01-02") }
	headed := func(i int) string { return string(rune('a'+i%3)) + strings.Repeat("h", 30) + counted(i) }
	const n, files = 300, 20
	var out strings.Builder
	for _, c := range []struct {
		name   string
		keys   []string
		ranges int
		prefix string
	}{
		{"counted", folders(n, counted, each(files)), 12, ""},
		{"counted, one range", folders(n, counted, each(files)), 1, ""},
		{"no leading zeros", folders(n, func(i int) string { return fmt.Sprintf("user%d", 3*i) }, each(files)), 5,
			"user"},
		{"hexadecimal", folders(n, func(int) string { return fmt.Sprintf("%016X", r.Uint64()) }, each(files)), 5, ""},
		{"words", folders(n, word, each(files)), 5, ""},
		{"dates", folders(n, date, each(files)), 5, ""},
		{"heads that differ", folders(n, headed, each(files)), 5, ""},
		{"one giant", folders(n, counted, func(i int) int {
			if i == n/2 {
				return 5000
			}
			return files
		}), 5, "customer-"},
		{"a crowd among few", folders(900, crowded, each(12)), 1, ""},
		{"a few keys each", folders(n, counted, each(4)), 5, ""},
		{"small ranges", folders(n, counted, each(3)), 200, ""},
		{"nothing to fold", folders(1, counted, each(3000)), 9, ""},
	} {
		keys := make([][]byte, len(c.keys))
		for i, k := range c.keys {
			keys[i] = []byte(k)
		}
		var cuts [][]byte
		for i := 1; i < c.ranges; i++ {
			cuts = append(cuts, keys[i*len(keys)/c.ranges])
		}
		s := &paced{rowCounts{Store: memstore.New()}}
		sizes := &sampled{keys: keys, starts: map[store.PartitionID]int{}, ends: map[store.PartitionID]int{}}
		load, err := listing.New(s.Store, listing.Options{})
		require.NoError(t, err)
		require.NoError(t, load.CreateBucket(t.Context(), "b", cuts...))
		var entries []listing.Entry
		for _, k := range keys {
			entries = append(entries, listing.Entry{Key: k})
		}
		require.NoError(t, load.Bucket("b").PutBatch(t.Context(), entries))
		_, ranges := bucketRanges(t, load)
		for i, rg := range ranges {
			sizes.starts[rg.Partition] = i * len(keys) / c.ranges
			sizes.ends[rg.Partition] = (i + 1) * len(keys) / c.ranges
		}
		cost := func(what string, o listing.Options, do func(b *listing.Bucket) string) {
			client, err := listing.New(s, o)
			require.NoError(t, err)
			synctest.Test(t, func(*testing.T) {
				_, _ = client.Bucket("b").Get(context.Background(), []byte("none")) // so that the map is known
				s.slices.Store(0)
				s.rows.Store(0)
				begun := time.Now()
				answer := do(client.Bucket("b"))
				took := time.Since(begun)
				synctest.Wait()
				fmt.Fprintf(&out, "%s, %s: %s; %d reads, %d rows, %v\n", c.name, what, answer, s.slices.Load(),
					s.rows.Load(), took)
			})
		}
		for _, reverse := range []bool{false, true} {
			for _, readAhead := range []int{1, 8} {
				o := listing.Options{RowsPerRead: 8, ReadAhead: readAhead}
				cost(fmt.Sprintf("page, reverse %v, %d at once", reverse, readAhead), o,
					func(b *listing.Bucket) string {
						q := listing.Query{Prefix: []byte(c.prefix), Delimiter: []byte("/"), Reverse: reverse, Limit: 250}
						page, err := b.List(context.Background(), q)
						require.NoError(t, err)
						return fmt.Sprintf("%d items", len(page.Items))
					})
			}
		}
		for _, v := range []struct {
			name string
			o    listing.Options
			q    listing.Query
		}{
			{"small page", listing.Options{RowsPerRead: 3, ReadAhead: 3, ReadAheadAfter: 2}, listing.Query{Limit: 60}},
			{"page of 3,000 bytes", listing.Options{RowsPerRead: 16, ReadAhead: 5}, listing.Query{Limit: 250, Bytes: 3000}},
			{"large page", listing.Options{RowsPerRead: 128, ReadAhead: 16, ReadAheadAfter: 4}, listing.Query{Limit: 1000}},
			{"page of many walks", listing.Options{RowsPerRead: 1, ReadAhead: 40, ReadAheadAfter: 1},
				listing.Query{Limit: 280, Reverse: true}},
		} {
			cost(v.name, v.o, func(b *listing.Bucket) string {
				q := v.q
				q.Prefix, q.Delimiter = []byte(c.prefix), []byte("/")
				page, err := b.List(context.Background(), q)
				require.NoError(t, err)
				return fmt.Sprintf("%d items", len(page.Items))
			})
		}
		cost("all pages", listing.Options{RowsPerRead: 8, ReadAhead: 8}, func(b *listing.Bucket) string {
			items := 0
			for page, q := (listing.Page{}), (listing.Query{Delimiter: []byte("/"), Limit: 90}); ; q.Token = page.Next {
				var err error
				page, err = b.List(context.Background(), q)
				require.NoError(t, err)
				if items += len(page.Items); page.Next == "" {
					return fmt.Sprintf("%d items", items)
				}
			}
		})
		for _, known := range []bool{false, true} {
			o := listing.Options{}
			if known {
				o.Sizes = sizes
			}
			cost(fmt.Sprintf("points, sizes %v", known), o, func(b *listing.Bucket) string {
				q := listing.Query{From: keys[len(keys)/9], To: keys[len(keys)*8/9]}
				points, err := b.SplitPoints(context.Background(), q, 7)
				require.NoError(t, err)
				within := keys[len(keys)/9 : len(keys)*8/9]
				return fmt.Sprintf("%q, the largest part is %.2f of the mean", points, uneven(within, points, 7))
			})
			for _, n := range []int{2, 40} {
				cost(fmt.Sprintf("%d parts of all, sizes %v", n, known), o, func(b *listing.Bucket) string {
					points, err := b.SplitPoints(context.Background(), listing.Query{}, n)
					require.NoError(t, err)
					sum := fnv.New64a()
					for _, p := range points {
						fmt.Fprintf(sum, "%q", p)
					}
					return fmt.Sprintf("%d points %x, the largest part is %.2f of the mean", len(points), sum.Sum64(),
						uneven(keys, points, n))
				})
			}
		}
	}
	const file = "testdata/costs.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(out.String(), "\n"))
}
