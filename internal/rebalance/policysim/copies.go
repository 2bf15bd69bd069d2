package policysim

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// goOn does the next part of the piece of work k of the bucket b, e.g. it copies a page of rows. The result `over`
// is true if the work has ended.
func (m *mover) goOn(ctx context.Context, b *bucket, k *work) (over bool, err error) {
	x := b.moves
	switch e := k.effect.(type) {
	case move.Wait:
		x.seen.Waited(e.Epoch)
		return true, nil
	case move.Task:
		if e.Phase == partmap.Draining {
			over, err = true, m.remove(ctx, b, &e)
		} else {
			over, err = m.page(ctx, b, k, &e)
		}
		if over && err == nil {
			x.seen.Did(e)
		}
		return over, err
	}
	return true, fmt.Errorf("unknown effect %T", k.effect)
}

// page reads one page of rows for the task t, as soon as the limit for rows per second allows it. The task is a copy, a
// comparison, or the removal of markers. The result `over` is true if this was the last page.
func (m *mover) page(ctx context.Context, b *bucket, k *work, t *move.Task) (over bool, err error) {
	pace, limit := m.pace, max(1, int(m.w.s.MaxRows/pages))
	if t.Phase == partmap.Settled {
		pace = m.counting
	}
	if !k.begun {
		k.begun = true
		if k.at = m.w.now().Add(pace.TakeAt(m.w.now(), limit)); k.at.After(m.w.now()) {
			return false, nil
		}
	}
	from := store.Partition{Bucket: b.id, ID: t.Range.Partition}
	to := store.Partition{Bucket: b.id, ID: t.Range.To}
	page, err := m.w.t.Slice(ctx, from, k.rest, store.SliceOptions{Limit: limit, Timestamps: true})
	if err != nil {
		return false, err
	}
	pace.Return(limit - len(page.Rows))
	switch t.Phase {
	case partmap.Copying:
		for i := range page.Rows {
			page.Rows[i].Value = cells.Copied(page.Rows[i].Value)
		}
		if err := m.w.t.Put(ctx, to, page.Rows...); err != nil {
			return false, err
		}
		m.copied(b, t, int64(len(page.Rows)))
	case partmap.Settled:
		for _, row := range page.Rows {
			if cells.IsMarker(row.Value) {
				if err := m.w.t.Delete(ctx, from, row.Key, row.Timestamp); err != nil {
					return false, err
				}
			}
		}
	}
	if !page.More {
		return true, nil
	}
	k.rest.Start, k.rest.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	k.at = m.w.now().Add(pace.TakeAt(m.w.now(), limit))
	return false, nil
}

// copied records that the task t has copied rows. The number is added to the goals (wanted changes of ranges) for which
// the rows were copied, and to the result for the reason of the move.
func (m *mover) copied(b *bucket, t *move.Task, rows int64) {
	if rows == 0 {
		return
	}
	for _, j := range m.jobs {
		for i := range j.Goals {
			g := &j.Goals[i]
			if j.Bucket == b.id && g.Stage == scheduler.Begun &&
				store.Within(t.Range.Start, store.Bounds{Start: g.Start, End: g.End}) {
				g.Copied += rows
			}
		}
	}
	for _, r := range b.moves.why[t.Batch] {
		if store.Within(t.Range.Start, store.Bounds{Start: r.span.Start, End: r.span.End}) {
			b.group.cause(r.why, rows)
			return
		}
	}
}

// remove deletes the rows of moved ranges from the partition that the ranges have left, as the last task of a move.
func (m *mover) remove(ctx context.Context, b *bucket, t *move.Task) error {
	src := store.Partition{Bucket: b.id, ID: t.Range.Partition}
	if t.Whole {
		return m.w.t.Remove(ctx, src, store.Bounds{}, m.w.draw())
	}
	for _, rg := range t.Ranges {
		if err := m.w.t.Remove(ctx, src, store.Bounds{Start: rg.Start, End: rg.End}, m.w.draw()); err != nil {
			return err
		}
	}
	return nil
}
