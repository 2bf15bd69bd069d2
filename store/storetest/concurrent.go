package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// batchAtomic tests that a store applies each batch of rows as a whole. Writers put batches with the same keys, or
// delete the whole partition, while readers read the partition. All rows of a page must come from the same batch.
func (s *suite) batchAtomic(t *testing.T) {
	const keys = 20
	p := newPartition()
	var clock atomic.Int64
	var done atomic.Bool
	write := func(ctx context.Context, removeEach int) error {
		for i := range s.scale(400) {
			ts := store.Timestamp(clock.Add(1))
			o := operation{ts: ts}
			if i%removeEach != 0 {
				for k := range keys {
					o.rows = append(o.rows, store.Row{
						Key: fmt.Appendf(nil, "%02d", k), Value: fmt.Append(nil, ts), Timestamp: ts,
					})
				}
			}
			if err := o.apply(ctx, s.rows, []store.Partition{p}); err != nil {
				return err
			}
		}
		return nil
	}
	read := func(ctx context.Context) error {
		for i := 0; !done.Load(); i++ {
			page, err := s.rows.Slice(
				ctx, p, store.Bounds{}, store.SliceOptions{Limit: keys + 1, Timestamps: true, Reverse: i%2 == 0},
			)
			if err != nil {
				return err
			}
			if n := len(page.Rows); !page.More && n != 0 && n != keys {
				return fmt.Errorf("%d rows of a batch of %d: %s", n, keys, formatRows(page.Rows))
			}
			for _, r := range page.Rows {
				if r.Timestamp != page.Rows[0].Timestamp || string(r.Value) != fmt.Sprint(r.Timestamp) {
					return fmt.Errorf("a page shows rows of several batches: %s", formatRows(page.Rows))
				}
			}
		}
		return nil
	}
	writers, ctx := errgroup.WithContext(t.Context())
	writers.Go(func() error { return write(ctx, 10_000) })
	writers.Go(func() error { return write(ctx, 7) })
	var readers errgroup.Group
	for range 2 {
		readers.Go(func() error { return read(t.Context()) })
	}
	err := writers.Wait()
	done.Store(true)
	require.NoError(t, err)
	require.NoError(t, readers.Wait())
}

// hammer tests a store under concurrent calls: several goroutines write and read two partitions at once. In the end
// each partition must have the rows that result from the writes in any order. Until then, each page must obey its
// bounds, order and limit.
func (s *suite) hammer(t *testing.T) {
	const writers = 4
	ps := []store.Partition{newPartition(), newPartition()}
	written := make([][]operation, writers)
	var done atomic.Bool
	write := func(ctx context.Context, w int) error {
		r := s.rand(t.Name(), w)
		for range s.scale(30) {
			for _, o := range randomHistory(r) {
				written[w] = append(written[w], o)
				if err := o.apply(ctx, s.rows, ps); err != nil {
					return err
				}
			}
		}
		return nil
	}
	read := func(ctx context.Context, n int) error {
		r := s.rand(t.Name(), 100+n)
		for !done.Load() {
			b := randomBounds(r, trickyKeys)
			o := store.SliceOptions{Limit: 1 + r.IntN(len(trickyKeys)), Reverse: r.IntN(2) == 0, Timestamps: true}
			p := pick(r, ps)
			page, err := s.rows.Slice(ctx, p, b, o)
			if err != nil {
				return err
			}
			if err := possible(page, b, o); err != nil {
				return fmt.Errorf("slice %s %+v: %w", formatBounds(b), o, err)
			}
			if _, _, err := s.rows.Get(ctx, p, pick(r, trickyKeys)); err != nil {
				return err
			}
		}
		return nil
	}
	var writing, reading errgroup.Group
	for w := range writers {
		writing.Go(func() error { return write(t.Context(), w) })
	}
	for n := range 2 {
		reading.Go(func() error { return read(t.Context(), n) })
	}
	err := writing.Wait()
	done.Store(true)
	require.NoError(t, err)
	require.NoError(t, reading.Wait())
	var ops []operation
	for _, some := range written {
		ops = append(ops, some...)
	}
	for n, p := range ps {
		require.NoError(t, s.checkPartition(t.Context(), s.rows, p, visible(ops, n), trickyKeys, s.rand(t.Name(), 200)))
	}
}

// possible checks a page that was read while other goroutines wrote. It returns an error if a row is outside the
// interval of keys b, if the rows are in the wrong order, or if the page has more rows than the limit in the options o.
func possible(page store.Page, b store.Bounds, o store.SliceOptions) error {
	for i, r := range page.Rows {
		switch {
		case !within(r.Key, b):
			return fmt.Errorf("key %q is out of bounds", r.Key)
		case i > 0 && (string(r.Key) > string(page.Rows[i-1].Key)) == o.Reverse:
			return fmt.Errorf("key %q is out of order", r.Key)
		case i > 0 && string(r.Key) == string(page.Rows[i-1].Key):
			return fmt.Errorf("key %q is repeated", r.Key)
		}
	}
	if len(page.Rows) > o.Limit || page.More && len(page.Rows) == 0 {
		return fmt.Errorf("%d rows, more is %t", len(page.Rows), page.More)
	}
	return nil
}
