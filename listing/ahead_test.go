package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// slowReads is a store whose slices take a millisecond each, of the time of a
// bubble, and are counted.
type slowReads struct {
	rowCounts
}

func (s *slowReads) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	time.Sleep(time.Millisecond)
	if err := ctx.Err(); err != nil {
		s.slices.Add(1)
		return store.Page{}, err
	}
	return s.rowCounts.Slice(ctx, p, b, o)
}

// cost is what a page took: reads, rows, and milliseconds if each read takes one.
type cost struct {
	items               []listing.Item
	reads, rows, rounds int64
}

// costOf lists a page of a bucket with these keys and so many ranges with each of
// the options.
func costOf(t *testing.T, keys []string, ranges int, q listing.Query, options ...listing.Options) (costs []cost) {
	t.Helper()
	s := &slowReads{rowCounts{Store: memstore.New()}}
	loader, err := listing.New(s.Store, listing.Options{})
	require.NoError(t, err)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, []byte(keys[i*len(keys)/ranges]))
	}
	require.NoError(t, loader.CreateBucket(t.Context(), "b", cuts...))
	var entries []listing.Entry
	for _, k := range keys {
		entries = append(entries, listing.Entry{Key: []byte(k)})
	}
	require.NoError(t, loader.Bucket("b").PutBatch(t.Context(), entries))
	for _, o := range options {
		client, err := listing.New(s, o)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			b := client.Bucket("b")
			_, err := b.Get(context.Background(), []byte("no such key")) // so that the map is known
			require.ErrorIs(t, err, listing.ErrNotFound)
			s.slices.Store(0)
			s.rows.Store(0)
			begun := time.Now()
			page, err := b.List(context.Background(), q)
			require.NoError(t, err)
			costs = append(costs, cost{page.Items, s.slices.Load(), s.rows.Load(), time.Since(begun).Milliseconds()})
		})
	}
	return costs
}

// folders are keys in so many folders, with as many files in each as said, in
// order.
func folders(n int, name func(i int) string, files func(i int) int) (keys []string) {
	for i := range n {
		in := name(i)
		for f := range files(i) {
			keys = append(keys, fmt.Sprintf("%s/%05d", in, f))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func each(n int) func(int) int { return func(int) int { return n } }

func counted(i int) string { return fmt.Sprintf("customer-%04d", i) }

// crowded names count, and then 400 lie between two of them, so that pages end long
// before it was guessed.
func crowded(i int) string {
	switch {
	case i < 60:
		return counted(10 * i)
	case i < 460:
		return counted(590) + fmt.Sprintf("-%06d", 7*i)
	}
	return counted(10 * (i - 400))
}

// TestReadingAhead: a page, of common prefixes or of the first key of each folder, is the same as one read after the
// other, in a fraction of the time where there is much to read; it costs at most half as much again, and
// where there is little to read, nothing. Time is counted in reads, one after the
// other.
func TestReadingAhead(t *testing.T) {
	r := seed.New(t)
	word := func(int) string {
		var b strings.Builder
		for range 2 + r.IntN(8) {
			b.WriteByte("aaabcdeeefghiiijklmnnnooopqrsssttuvwxyz-"[r.IntN(40)])
		}
		return b.String()
	}
	const n, files, limit = 600, 30, 500
	var sample faulttest.Sample
	for _, c := range []struct {
		name   string
		keys   []string
		ranges int
		limit  int
		faster float64 // at least
		skips  bool    // from prefix to prefix, in proportion to them
	}{
		{"counted", folders(n, counted, each(files)), 20, limit, 4, true},
		{"counted, one range", folders(n, counted, each(files)), 1, limit, 4, true},
		{"no leading zeros", folders(n, func(i int) string { return fmt.Sprintf("user%d", i) }, each(files)), 7, limit,
			3, true},
		{"hexadecimal", folders(n, func(int) string { return fmt.Sprintf("%016x", r.Uint64()) }, each(files)), 7, limit,
			2.5, true},
		{"words", folders(n, word, each(files)), 7, limit, 1.7, true},
		{"words, one range", folders(n, word, each(files)), 1, limit, 1.7, true},
		{"dates", folders(n, func(i int) string {
			return time.Date(2022, 1, 1+i, 0, 0, 0, 0, time.UTC).Format("2006-01-02")
		}, each(files)), 7, limit, 1.3, true},
		{"a long head", folders(n, func(i int) string { return strings.Repeat("h", 300) + counted(i) }, each(files)), 7,
			limit, 3.5, true},
		{"long heads that differ",
			folders(n, func(i int) string { return string(rune('a'+i%3)) + strings.Repeat("h", 300) + counted(i) },
				each(files)), 7, limit, 1.3, true},
		{"one giant", folders(n, counted, func(i int) int {
			if i == n/2 {
				return 10_000
			}
			return files
		}), 7, limit, 3, true},
		{"a crowd among few", folders(900, crowded, each(files)), 1, 250, 1, true},
		{"a few keys each", folders(n, counted, each(6)), 7, limit, 1, false},
		{"one key each", folders(n, counted, each(1)), 7, limit, 1, false},
		{"few folders", folders(5, counted, each(2000)), 3, limit, 1, true},
		{"forty folders", folders(40, counted, each(200)), 3, limit, 1, true},
		{"a small limit", folders(n, counted, each(files)), 7, 8, 1, true},
		{"a limit of 100", folders(n, counted, each(files)), 7, 100, 1.5, true},
	} {
		for i := range 4 {
			if sample.Skips() {
				continue
			}
			reverse := i%2 == 1
			q := listing.Query{Delimiter: []byte("/"), Reverse: reverse, Limit: c.limit}
			if i >= 2 {
				q.Delimiter, q.Stretch = nil, func(key []byte) int { return bytes.IndexByte(key, '/') + 1 }
				q.Sift = func(e listing.Entry) listing.Sifted { return listing.Sifted{Pass: q.Stretch(e.Key)} }
			}
			costs := costOf(
				t, c.keys, c.ranges, q, listing.Options{RowsPerRead: 8}, listing.Options{RowsPerRead: 8, ReadAhead: 8},
			)
			one, many := costs[0], costs[1]
			require.Equal(t, one.items, many.items, c.name)
			per := float64(len(many.items))
			t.Logf(
				"%-22s %d reverse %-5v %4d items: %4d reads became %4d (%.2f per item), %6d rows %6d (%.1f per item), "+
					"%4d rounds %4d (%.1f times as fast)",
				c.name, i, reverse, len(many.items), one.reads, many.reads, float64(many.reads)/per, one.rows, many.rows,
				float64(many.rows)/per, one.rounds, many.rounds, float64(one.rounds)/float64(many.rounds),
			)
			assert.LessOrEqual(t, many.reads, one.reads*3/2+4, c.name)
			assert.LessOrEqual(t, many.rows, one.rows*3/2+64, c.name)
			assert.GreaterOrEqual(t, float64(one.rounds), c.faster*float64(many.rounds), c.name)
			if len(many.items) <= 8 {
				require.Equal(t, one.reads, many.reads, c.name)
				require.Equal(t, one.rows, many.rows, c.name)
			} else if c.skips {
				assert.LessOrEqual(t, many.reads, int64(2*per), c.name)
				first := int64(200)
				if i == 2 {
					first += 2000 // embedded it begins with a slice for a whole page
				}
				assert.LessOrEqual(t, many.rows, int64(10*per)+first, c.name)
			}
		}
	}
}

// TestReadingAheadOfNothing: places with nothing in them end pages early, as ever, and
// no page stays where the one before ended; whether common prefixes are listed, or the first key of each.
func TestReadingAheadOfNothing(t *testing.T) {
	r := seed.New(t)
	for round := range 60 {
		s := memstore.New()
		defer s.Close()
		c, err := listing.New(&listtest.Morsels{Store: s, Rows: 2}, listing.Options{
			RowsPerRead: 1, ReadAhead: 1 + r.IntN(8), ReadAheadAfter: 1, MaxIdleReads: 1 + r.IntN(6),
		})
		require.NoError(t, err)
		const names = 400
		var cuts [][]byte
		for i := 1; i < names; i++ {
			if r.IntN(2) == 0 {
				cuts = append(cuts, []byte(counted(i)))
			}
		}
		require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
		b := c.Bucket("b")
		var want []string
		var entries []listing.Entry
		q := listing.Query{Delimiter: []byte("/"), Reverse: r.IntN(2) == 0, Limit: 20 + r.IntN(180)}
		if round%2 == 1 {
			q.Delimiter, q.Stretch = nil, func(key []byte) int { return bytes.IndexByte(key, '/') + 1 }
			q.Sift = func(e listing.Entry) listing.Sifted { return listing.Sifted{Pass: q.Stretch(e.Key)} }
		}
		for i, there := 0, true; i < names; i++ {
			if there = there != (r.IntN(20) == 0); there {
				files, name := 1+r.IntN(5), counted(i)+"/"
				switch {
				case q.Sift != nil && q.Reverse:
					name += fmt.Sprint(files - 1)
				case q.Sift != nil:
					name += "0"
				}
				want = append(want, name)
				for f := range files {
					entries = append(entries, listing.Entry{Key: fmt.Appendf(nil, "%s/%d", counted(i), f)})
				}
			}
		}
		require.NoError(t, b.PutBatch(t.Context(), entries))
		if q.Reverse {
			slices.Reverse(want)
		}
		var got []string
		for pages := 0; pages == 0 || q.Token != ""; pages++ {
			require.LessOrEqual(t, pages, names+1, "a page led on to itself")
			page, err := b.List(t.Context(), q)
			require.NoError(t, err)
			for _, item := range page.Items {
				got = append(got, string(item.Key))
			}
			q.Token = page.Next
		}
		require.Equal(t, want, got)
	}
}
