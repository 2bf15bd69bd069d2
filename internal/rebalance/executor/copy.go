package executor

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// These limits are for writes of copied rows. batchRows and maxBatchBytes bound one write, and writers is the number of
// writes of a range at the same time. If rows are copied without a limit per second, maxBatchRows replaces batchRows,
// and hastyWriters replaces writers.
//
// Larger writes are hardly faster on Cassandra, and the bytes must stay well below half of a commit-log segment. Large
// batches cost a node the least time per row, but other requests wait longer behind each batch.
const (
	batchRows     = 200
	maxBatchRows  = 500
	maxBatchBytes = 1 << 20
	writers       = 4
	hastyWriters  = 2
)

// batch is a group of rows that are copied from the old partition of a moving range to the new one in one store call.
type batch struct {
	rows []store.Row
	read time.Time // the time before these rows were read
	// tied is true if the new partition has rows of clients with the same keys and timestamps. The rows of this batch
	// are then written as ordinary entries, since copies would lose against the clients' rows.
	tied bool
}

// cells returns the rows of the batch as a move writes them to the new partition: with their timestamps, and marked as
// copies. In a tied batch the rows are ordinary entries, without the mark. A tied batch has rows for which the new
// partition has a client's row with the same key and timestamp, against which a copy would lose.
func (b *batch) cells() []store.Row {
	out := make([]store.Row, len(b.rows))
	for i, row := range b.rows {
		if out[i] = row; b.tied {
			out[i].Value = cells.Original(row.Value)
		} else {
			out[i].Value = cells.Copied(row.Value)
		}
	}
	return out
}

// copy writes all rows of a moving range, with their timestamps, from its source (the old partition) to its destination
// (the new one). The new rows are marked as copies. Deletion markers are copied, too.
func (x *Executor) copy(ctx context.Context, t *move.Task) error {
	// One reader runs ahead of several writers.
	src, dst := x.partition(t.Range.Partition), x.partition(t.Range.To)
	g, gctx := errgroup.WithContext(ctx)
	batches := make(chan batch, 1)
	g.Go(func() error {
		defer close(batches)
		return x.scan(gctx, x.o.Pace, src, bounds(t), func(read time.Time, rows []store.Row) error {
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
				x.count(t, func(p *Progress) { p.Copied += int64(len(b.rows)) })
			}
			return nil
		})
	}
	return g.Wait()
}

// hasty reports whether rows are copied as fast as possible. This is so if Options.Pace sets no limit of rows per
// second.
func (x *Executor) hasty() bool { return x.o.Pace.Rate() <= 0 }

// writers returns how many writes of copied rows of one range may run at the same time.
func (x *Executor) writers() int {
	switch {
	case x.o.Writers > 0:
		return x.o.Writers
	case x.hasty():
		return hastyWriters
	}
	return writers
}

// send sends the value b to the channel `to`. If ctx ends before b can be sent, send returns the cause.
func send[T any](ctx context.Context, to chan<- T, b T) error {
	select {
	case to <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fits returns how many of the given rows, from the first one on, fit into one write. The limits are a number of rows
// and a number of bytes; the result is at least 1 if there are rows.
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

// write copies rows from src, the old partition of a moving range, to dst, the new one, with retries. The parameter b
// has the rows. Rows that were read more than WriteTimeout ago are read again first.
func (x *Executor) write(ctx context.Context, t *move.Task, src, dst store.Partition, b batch) error {
	// An old row may have been deleted meanwhile, and its tombstone collected, so that the copy would bring the row
	// back.
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

// sent records the result of a store call that has written copies of the given rows. err is the error of the call.
//   - If the outcome is unknown, sent remembers the copies. The comparison later deletes them if the source has lost
//     their rows.
//   - If the call has succeeded, sent forgets what it remembers about the same rows.
func (x *Executor) sent(t *move.Task, rows []store.Row, err error) {
	// A copy of unknown outcome may arrive after the range was compared, and would then bring back a row that the
	// source has lost.
	unknown := store.OutcomeUnknown(err)
	if err != nil && !unknown {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.unsure[rangeKey(t)]
	if unknown && all == nil {
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

// again reads the rows in `old` once more, by their keys, from src, the old partition of a moving range. It returns the
// rows that src still has, as they are now.
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

// scan reads the rows of partition p within the bounds b, with timestamps, page by page. For each page that has rows,
// it calls f with the page and with the time right before the page was read. pace limits the rows read per second.
func (x *Executor) scan(
	ctx context.Context, pace *wait.Pacer, p store.Partition, b store.Bounds,
	f func(read time.Time, rows []store.Row) error,
) error {
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

// retry calls f, which makes a store call, and calls f again after a timeout or while the store is unavailable, up to
// four times in all. f must be idempotent.
func (x *Executor) retry(ctx context.Context, f func() error) error {
	// Without retries one lost answer would make a copy of a million rows start over.
	const tries = 4
	for failures := 1; ; failures++ {
		err := f()
		if k := store.KindOf(err); err == nil || k != store.Timeout && k != store.Unavailable {
			return err
		}
		if failures == tries || pauses.Sleep(ctx, failures) != nil {
			return err
		}
	}
}

// bounds returns the interval of keys of the range that the task t works on.
func bounds(t *move.Task) store.Bounds {
	return store.Bounds{Start: t.Range.Start, End: t.Range.End}
}
