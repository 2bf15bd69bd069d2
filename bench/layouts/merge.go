package layouts

import (
	"bytes"
	"container/heap"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// stream is one partition that takes part in a merge, with the rows that were read and not yet used.
type stream struct {
	id   store.PartitionID
	rows []store.Row  // read and not yet taken
	left store.Bounds // not read
	more bool         // there may be something in left
}

// mergeLazily returns one sorted page from several partitions, each of which is sorted in itself. It first reads a
// little of each partition, and then more of those partitions whose rows are used up. parallel is the number of
// partitions that are read at the same time. limit is the largest number of rows.
func (t *table) mergeLazily(
	ctx context.Context, ids []store.PartitionID, b store.Bounds, limit int, reverse bool, parallel int,
) ([]store.Row, error) {
	size := chunk(limit, len(ids))
	streams := make([]stream, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range ids {
		s := &streams[i]
		s.id, s.left, s.more = id, b, true
		g.Go(func() error { return t.refill(gctx, s, size, reverse) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	m := merge{reverse: reverse}
	for i := range streams {
		if len(streams[i].rows) > 0 {
			m.streams = append(m.streams, &streams[i])
		}
	}
	heap.Init(&m)
	out := make([]store.Row, 0, limit)
	for len(m.streams) > 0 && len(out) < limit {
		s := m.streams[0]
		out = append(out, s.rows[0])
		s.rows = s.rows[1:]
		if len(s.rows) == 0 && s.more && len(out) < limit {
			if err := t.refill(ctx, s, size, reverse); err != nil {
				return nil, err
			}
		}
		if len(s.rows) == 0 {
			heap.Pop(&m)
		} else {
			heap.Fix(&m, 0)
		}
	}
	return out, nil
}

func (t *table) refill(ctx context.Context, s *stream, size int, reverse bool) error {
	page, err := t.slice(ctx, s.id, s.left, size, reverse)
	if err != nil {
		return err
	}
	s.rows, s.more = page.Rows, page.More
	if s.more {
		s.left = beyond(s.left, page.Rows[len(page.Rows)-1].Key, reverse)
	}
	return nil
}

// merge is a heap of partitions, ordered by the next row of each partition.
type merge struct {
	streams []*stream
	reverse bool
}

func (m *merge) Len() int      { return len(m.streams) }
func (m *merge) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }
func (m *merge) Push(x any)    { m.streams = append(m.streams, x.(*stream)) }

func (m *merge) Less(i, j int) bool {
	d := bytes.Compare(m.streams[i].rows[0].Key, m.streams[j].rows[0].Key)
	return d < 0 != m.reverse && d != 0
}

func (m *merge) Pop() any {
	last := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return last
}

// mergeAll returns one sorted page from several partitions in the naive way. It reads a whole page of every partition,
// sorts all rows, and returns the first `limit` rows.
func (t *table) mergeAll(
	ctx context.Context, ids []store.PartitionID, b store.Bounds, limit int, reverse bool, parallel int,
) ([]store.Row, error) {
	pages := make([]store.Page, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range ids {
		g.Go(func() (err error) {
			pages[i], err = t.slice(ctx, id, b, limit, reverse)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []store.Row
	for _, p := range pages {
		all = append(all, p.Rows...)
	}
	slices.SortFunc(all, func(a, b store.Row) int {
		if reverse {
			a, b = b, a
		}
		return bytes.Compare(a.Key, b.Key)
	})
	return all[:min(limit, len(all))], nil
}
