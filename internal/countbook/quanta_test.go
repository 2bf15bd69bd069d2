package countbook

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// timed are rows with the times at which they were written.
type timed []store.Row

func (r timed) Slice(_ context.Context, _ store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	rows := r[sort.Search(len(r), func(i int) bool {
		return string(r[i].Key) > string(b.Start) || string(r[i].Key) == string(b.Start) && !b.StartExclusive
	}):]
	n := min(len(rows), o.Limit)
	page := store.Page{Rows: slices.Clone(rows[:n]), More: n < len(rows)}
	for i := range page.Rows {
		if !o.Timestamps {
			page.Rows[i].Timestamp = 0
		}
	}
	return page, nil
}

func (r *timed) add(at int, format string, args ...any) {
	*r = append(*r, store.Row{
		Key: fmt.Appendf(nil, format, args...), Value: store.EntryCell([]byte("value")), Timestamp: store.Timestamp(at),
	})
}

// Quanta say when their rows were written, and begin where a stream ends: right above its newest key, in front of the
// next old one; or right below its newest key, and right above the old one below it.
func TestQuantaHaveTimes(t *testing.T) {
	for _, rows := range []int{40, 500, 20_000} {
		var r timed
		for i := range rows {
			r.add(1000+i*7919%50, "a/%08d", i)
		}
		for i := range rows {
			r.add(2_000_000+i, "m/%08d", i) // ascends
		}
		for i := range rows {
			r.add(1000+i*7919%50, "o/%08d", i)
		}
		for i := range rows {
			r.add(2_000_000+rows-i, "q/%08d", i) // descends
		}
		c, err := NewRecount(r, store.Partition{}, store.Bounds{}, RecountOptions{}).Run(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(c.Quanta), 256)
		require.GreaterOrEqual(t, len(c.Quanta), min(4*rows, 120))
		keys := map[string]bool{}
		at := 0
		for i, q := range c.Quanta {
			keys[string(q.Key)] = true
			if q.Rows == 0 {
				continue
			}
			oldest, newest := int64(r[at].Timestamp), int64(r[at].Timestamp)
			for _, row := range r[at : at+int(q.Rows)] {
				oldest, newest = min(oldest, int64(row.Timestamp)), max(newest, int64(row.Timestamp))
			}
			require.Equal(t, [2]int64{oldest, newest}, [2]int64{q.Oldest, q.Newest}, "quantum %d", i)
			at += int(q.Rows)
		}
		require.Equal(t, len(r), at)
		for _, k := range []string{fmt.Sprintf("a/%08d\x00", rows-1), "m", "o", fmt.Sprintf("o/%08d\x00", rows-1), "q"} {
			require.True(t, keys[k], "%d rows: no cut at %q", rows, k)
		}
	}
}
