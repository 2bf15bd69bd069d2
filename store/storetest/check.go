package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// checkPage compares a page that a store has returned with the page that a correct store returns for the interval of
// keys b and the options o. all has all rows of the partition, in the order of their keys. checkPage returns an error
// that describes the first difference, or nil.
func (s *suite) checkPage(page store.Page, all []store.Row, b store.Bounds, o store.SliceOptions) error {
	want := expected(all, b, o)
	got := page.Rows
	bytesRead := 0
	for i, r := range got {
		switch {
		case i >= len(want):
			return fmt.Errorf("row %s too many", formatRows(got[i:i+1]))
		case i >= o.Limit:
			return fmt.Errorf("%d rows, with a limit of %d", len(got), o.Limit)
		case bytesRead >= storekit.PageBytes(&o):
			return fmt.Errorf("the page goes on after %d bytes", bytesRead)
		case !sameRow(r, want[i]):
			return fmt.Errorf("row %d is %s, not %s", i, formatRows(got[i:i+1]), formatRows(want[i:i+1]))
		case r.Value == nil:
			return fmt.Errorf("row %d has a nil value", i)
		}
		bytesRead += len(r.Key) + len(r.Value)
	}
	full := len(got) == o.Limit || bytesRead >= storekit.PageBytes(&o)
	switch {
	case page.More && len(got) == 0:
		return fmt.Errorf("an empty page says that there is more")
	case !page.More && len(got) < len(want):
		return fmt.Errorf(
			"%d rows of %d, and no more is said to be there; missing: %s", len(got), len(want),
			formatRows(want[len(got):len(got)+1]),
		)
	case page.More && !full && !s.ShortPages:
		return fmt.Errorf("%d rows of %d, and more is said to be there, but no limit is reached", len(got), len(want))
	}
	return nil
}

// expected returns the rows that a correct store returns for the interval of keys b and the options o, but without the
// limits in o. all has all rows of the partition.
func expected(all []store.Row, b store.Bounds, o store.SliceOptions) (rows []store.Row) {
	for _, r := range all {
		if within(r.Key, b) {
			if !o.Timestamps {
				r.Timestamp = 0
			}
			rows = append(rows, r)
		}
	}
	if o.Reverse {
		slices.Reverse(rows)
	}
	return rows
}

func sameRow(a, b store.Row) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.Timestamp == b.Timestamp
}

// checkSlice reads one page of the partition p from a store, and compares it with the page that a correct store returns
// for the interval of keys b and the options o. all has all rows of the partition. checkSlice returns an error if the
// pages differ.
func (s *suite) checkSlice(
	ctx context.Context, rows store.Rows, p store.Partition, all []store.Row, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	o.Into = dirty(int(s.pages.Add(1) % 7))
	page, err := rows.Slice(ctx, p, b, o)
	if err == nil {
		err = s.checkPage(page, all, b, o)
	}
	if err != nil {
		return page, fmt.Errorf("slice %s %+v: %w", formatBounds(b), o, err)
	}
	return page, nil
}

// dirty returns a slice of rows that are filled with rubbish, with the capacity n, or nil if n is 0. A test passes it
// as the memory for a page, so that a store which relies on empty memory fails.
func dirty(n int) []store.Row {
	if n == 0 {
		return nil
	}
	rows := make([]store.Row, n)
	for i := range rows {
		rows[i] = store.Row{Key: []byte("another key"), Value: []byte("another value"), Timestamp: 77}
	}
	return rows[:n/2]
}

// checkPages reads the rows of the partition p page by page, until the interval of keys b has been read to its end. It
// compares each page with the page that a correct store returns. all has all rows of the partition.
func (s *suite) checkPages(
	ctx context.Context, rows store.Rows, p store.Partition, all []store.Row, b store.Bounds, o store.SliceOptions,
) error {
	for {
		page, err := s.checkSlice(ctx, rows, p, all, b, o)
		if err != nil || !page.More {
			return err
		}
		last := page.Rows[len(page.Rows)-1].Key
		if o.Reverse {
			b.End = last
		} else {
			b.Start, b.StartExclusive = last, true
		}
	}
}

// checkGet gets one key of the partition p. It returns nil if the result is the row of the key in all, which are the
// rows that the partition must have. If all has no such row, the store must find none. checkGet returns an error for
// any other result.
func checkGet(ctx context.Context, rows store.Rows, p store.Partition, all []store.Row, key []byte) error {
	i := slices.IndexFunc(all, func(r store.Row) bool { return bytes.Equal(r.Key, key) })
	got, found, err := rows.Get(ctx, p, key)
	switch {
	case err != nil:
		return fmt.Errorf("get %s: %w", clip(key), err)
	case found != (i >= 0):
		return fmt.Errorf("get %s: found is %t (%s)", clip(key), found, formatRows([]store.Row{got}))
	case found && !sameRow(got, all[i]):
		return fmt.Errorf("get %s: %s, not %s", clip(key), formatRows([]store.Row{got}), formatRows(all[i:i+1]))
	case found && got.Value == nil:
		return fmt.Errorf("get %s: a nil value", clip(key))
	}
	return nil
}

// checkPartition reads the partition p in every way, and compares the results with all, the rows that the partition
// must have. The ways are forward, in reverse, within random intervals, in pages, and key by key. keys are the keys to
// get, and the ends of the random intervals.
func (s *suite) checkPartition(
	ctx context.Context, rows store.Rows, p store.Partition, all []store.Row, keys [][]byte, r *rand.Rand,
) error {
	whole := store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true}
	if err := s.checkPages(ctx, rows, p, all, store.Bounds{}, whole); err != nil {
		return err
	}
	whole.Reverse = true
	if err := s.checkPages(ctx, rows, p, all, store.Bounds{}, whole); err != nil {
		return err
	}
	for range 4 {
		o := store.SliceOptions{Limit: 1 + r.IntN(len(all)+2), Reverse: r.IntN(2) == 0, Timestamps: r.IntN(2) == 0}
		if err := s.checkPages(ctx, rows, p, all, randomBounds(r, keys), o); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if s.Slow && r.IntN(4) > 0 {
			continue
		}
		if err := checkGet(ctx, rows, p, all, key); err != nil {
			return err
		}
	}
	return nil
}
