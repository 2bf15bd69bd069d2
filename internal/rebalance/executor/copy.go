package executor

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/base/wait"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/store"
)

// One write takes at most so much: more is hardly faster on Cassandra, and the bytes
// stay well below half of a commit-log segment. Large batches cost a node the least
// time per row, but others wait longer behind each: they are for when there is no
// throttle, and then fewer are under way.
const (
	batchRows     = 200
	maxBatchRows  = 500
	maxBatchBytes = 1 << 20
	writers       = 4
	hastyWriters  = 2
)

// batch is rows of one partition on their way to another.
type batch struct {
	rows []store.Row
	read time.Time // before their read began
	// tied: the other one has rows of the same timestamps that clients wrote there, to
	// which copies would lose. So these go as what they are.
	tied bool
}

// cells are the rows as they are written: as copies, with their own timestamps.
func (b *batch) cells() []store.Row {
	out := make([]store.Row, len(b.rows))
	for i, row := range b.rows {
		if out[i] = row; b.tied {
			out[i].Value = store.OriginalCell(row.Value)
		} else {
			out[i].Value = store.CopiedCell(row.Value)
		}
	}
	return out
}

// copy writes all rows of a range's source to its destination, as copies with their
// own timestamps, markers included. One reader keeps ahead of several writers.
func (x *Executor) copy(ctx context.Context, t *move.Task) error {
	src, dst := x.partition(t.Range.Partition), x.partition(t.Range.To)
	g, gctx := errgroup.WithContext(ctx)
	batches := make(chan batch, 1)
	g.Go(func() error {
		defer close(batches)
		return x.scan(gctx, src, bounds(t), func(read time.Time, rows []store.Row) error {
			for len(rows) > 0 {
				n := x.fits(rows)
				if err := send(gctx, batches, batch{rows: rows[:n], read: read}); err != nil {
					return err
				}
				rows = rows[n:]
			}
			return nil
		})
	})
	for range x.writers() {
		g.Go(func() error {
			for b := range batches {
				if err := x.failpoint(gctx, "copy batch", string(b.rows[0].Key)); err != nil {
					return err
				}
				if err := x.write(gctx, t, src, dst, b); err != nil {
					return err
				}
				x.count(t.Batch, func(p *progress) { p.copied.Add(int64(len(b.rows))) })
			}
			return nil
		})
	}
	return g.Wait()
}

// hasty reports whether there is no throttle.
func (x *Executor) hasty() bool { return x.o.Pace.Rate() <= 0 }

// writers is how many batches of one range are written at once.
func (x *Executor) writers() int {
	switch {
	case x.o.Writers > 0:
		return x.o.Writers
	case x.hasty():
		return hastyWriters
	}
	return writers
}

// send hands something over, unless ctx ends before.
func send[T any](ctx context.Context, to chan<- T, b T) error {
	select {
	case to <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fits returns how many of the first rows make one batch.
func (x *Executor) fits(rows []store.Row) int {
	most := x.o.BatchRows
	if most <= 0 {
		if most = batchRows; x.hasty() {
			most = maxBatchRows
		}
	}
	n, size := 0, 0
	for n < len(rows) && n < most {
		size += len(rows[n].Key) + len(rows[n].Value)
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	return n
}

// write puts a batch. A row that was read too long ago may meanwhile have been
// deleted, and its tombstone collected: so it is read again.
func (x *Executor) write(ctx context.Context, t *move.Task, src, dst store.Partition, b batch) error {
	return x.retry(ctx, func() error {
		if x.o.Now().Sub(b.read) > x.o.WriteTimeout {
			read := x.o.Now()
			rows, err := x.again(ctx, src, b.rows)
			if err != nil {
				return err
			}
			b.rows, b.read = rows, read
		}
		err := x.rows.Put(ctx, dst, b.cells()...)
		x.sent(t, b.rows, err)
		return err
	})
}

// sent notes copies whose outcome is unknown, until it is known. One that arrives when
// the range was compared would bring back a row that the source has lost meanwhile.
func (x *Executor) sent(t *move.Task, rows []store.Row, err error) {
	unknown := store.OutcomeUnknown(err)
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.unsure[rangeKey(t)]
	if err != nil && !unknown || err == nil && len(all) == 0 {
		return
	}
	if all == nil {
		all = map[string]store.Timestamp{}
		x.unsure[rangeKey(t)] = all
	}
	for i := range rows {
		if key := string(rows[i].Key); unknown {
			all[key] = max(all[key], rows[i].Timestamp)
		} else if all[key] <= rows[i].Timestamp {
			delete(all, key)
		}
	}
}

// again reads rows anew, as far as they are still there.
func (x *Executor) again(ctx context.Context, src store.Partition, old []store.Row) ([]store.Row, error) {
	var rows []store.Row
	for i := range old {
		row, found, err := x.rows.Get(ctx, src, old[i].Key)
		if err != nil {
			return nil, err
		}
		if found {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// scan reads all rows of a partition within bounds, with their timestamps, page by
// page, at the pace of the throttle. f gets when each page's read began.
func (x *Executor) scan(ctx context.Context, p store.Partition, b store.Bounds, f func(read time.Time, rows []store.Row) error) error {
	return x.scanAt(ctx, x.o.Pace, p, b, f)
}

// scanAt is scan at some pace.
func (x *Executor) scanAt(ctx context.Context, pace *wait.Pacer, p store.Partition, b store.Bounds, f func(read time.Time, rows []store.Row) error) error {
	for {
		if err := pace.Take(ctx, x.o.PageRows); err != nil {
			return err
		}
		var page store.Page
		var read time.Time
		err := x.retry(ctx, func() (err error) {
			read = x.o.Now()
			page, err = x.rows.Slice(ctx, p, b, store.SliceOptions{Limit: x.o.PageRows, Timestamps: true})
			return err
		})
		if err != nil {
			return err
		}
		pace.Return(x.o.PageRows - len(page.Rows))
		if len(page.Rows) > 0 {
			if err := f(read, page.Rows); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}

// retry repeats a store call that may be repeated, as often as it is likely to
// help: one lost answer must not make a copy of a million rows start over.
func (x *Executor) retry(ctx context.Context, f func() error) error {
	const tries = 4
	failures := map[string]int{}
	for {
		err := f()
		if k := store.KindOf(err); err == nil || k != store.Timeout && k != store.Unavailable {
			return err
		}
		if failures[""] == tries-1 || x.pauseAfter(ctx, failures, "") != nil {
			return err
		}
	}
}

func bounds(t *move.Task) store.Bounds {
	return store.Bounds{Start: t.Range.Start, End: t.Range.End}
}
