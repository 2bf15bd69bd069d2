package executor

import (
	"bytes"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/rebalance/migrate"
	"github.com/evenkeel/evenkeel/store"
)

// verify compares the two ends of a move: for every row of the source the
// destination has the same one or a newer one. What it lacks is copied: writes
// that arrived late. One reader of the source keeps ahead of those who read the
// destination, which they do after the source, page for page.
func (x *Executor) verify(ctx context.Context, t *migrate.Task) error {
	src, dst := x.partition(t.Range.Partition), x.partition(t.Range.To)
	highest := store.Timestamp(0) // the reader's
	g, gctx := errgroup.WithContext(ctx)
	pages := make(chan batch)
	g.Go(func() error {
		defer close(pages)
		return x.scan(gctx, src, bounds(t), func(read time.Time, rows []store.Row) error {
			for i := range rows {
				highest = max(highest, rows[i].Timestamp)
			}
			return send(gctx, pages, batch{rows, read})
		})
	})
	for range min(x.writers(), comparers) {
		g.Go(func() error {
			for page := range pages {
				if err := x.compare(gctx, t, src, dst, page); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen[seenKey(t)] = max(highest, 1) // kept for the removal
	return nil
}

// comparers is how many pages of a range are compared at once: with the reader's
// that keeps two processors busy, and each is up to two pages in memory.
const comparers = 2

// compare looks for a page of the source in the destination, and copies what is
// missing there.
func (x *Executor) compare(ctx context.Context, t *migrate.Task, src, dst store.Partition, page batch) error {
	missing, err := x.missing(ctx, dst, page.rows)
	if err != nil {
		return err
	}
	x.count(t.Batch, func(p *progress) {
		p.verified.Add(int64(len(page.rows)))
		p.mended.Add(int64(len(missing)))
	})
	for len(missing) > 0 {
		n := x.fits(missing)
		if err := x.failpoint(ctx, "verify batch", string(missing[0].Key)); err != nil {
			return err
		}
		if err := x.write(ctx, src, dst, batch{missing[:n], page.read}); err != nil {
			return err
		}
		missing = missing[n:]
	}
	return nil
}

// missing returns those of a page's rows to which the destination has neither the
// same nor a newer one.
func (x *Executor) missing(ctx context.Context, dst store.Partition, rows []store.Row) (out []store.Row, err error) {
	b := store.Bounds{Start: rows[0].Key}
	last := rows[len(rows)-1].Key
	if len(last) < store.MaxKeyBytes {
		b.End = append(bytes.Clone(last), 0) // its successor
	}
	i := 0
	for i < len(rows) {
		var page store.Page
		err := x.retry(ctx, func() (err error) {
			page, err = x.rows.Slice(ctx, dst, b, store.SliceOptions{Limit: x.o.PageRows, Timestamps: true})
			return err
		})
		if err != nil {
			return nil, err
		}
		for j := range page.Rows {
			theirs := &page.Rows[j]
			for i < len(rows) && string(rows[i].Key) < string(theirs.Key) {
				out = append(out, rows[i])
				i++
			}
			if i < len(rows) && string(rows[i].Key) == string(theirs.Key) {
				if newer(&rows[i], theirs) {
					out = append(out, rows[i])
				}
				i++
			}
		}
		if !page.More {
			return append(out, rows[i:]...), nil
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
	return out, nil
}

// newer reports whether row a beats row b of the same key: as in every store, the
// higher timestamp wins, and at a tie the larger value, which is the marker's.
func newer(a, b *store.Row) bool {
	if a.Timestamp != b.Timestamp {
		return a.Timestamp > b.Timestamp
	}
	return bytes.Compare(a.Value, b.Value) > 0
}

// seenKey is a move's range, for Executor.seen.
func seenKey(t *migrate.Task) string {
	return t.Range.Partition.String() + string(t.Range.Start)
}

// remove hides ranges in their source for good: above the timestamps of all of
// their rows, and of all that may still arrive, so that late writes stay
// invisible. A mover that has not compared them itself does so now: what the map says
// was done to the rows may be older than the map, where a store was restored.
func (x *Executor) remove(ctx context.Context, e *migrate.Remove) error {
	src := x.partition(e.Range.Partition)
	highest := store.Timestamp(x.o.Now().UnixMicro())
	for _, rg := range e.Ranges {
		t := migrate.Task{Range: rg}
		x.mu.Lock()
		seen := x.seen[seenKey(&t)]
		x.mu.Unlock()
		if highest = max(highest, seen); seen > 0 {
			continue
		}
		dst := x.partition(rg.To)
		err := x.scan(ctx, src, bounds(&t), func(read time.Time, rows []store.Row) error {
			for i := range rows {
				highest = max(highest, rows[i].Timestamp)
			}
			return x.carry(ctx, dst, read, rows)
		})
		if err != nil {
			return err
		}
	}
	remove := func(b store.Bounds) error {
		ts := highest + store.Timestamp(x.o.Skew.Microseconds())
		return x.retry(ctx, func() error { return x.rows.Remove(ctx, src, b, ts) })
	}
	spans := []store.Bounds{{}}
	if !e.Whole {
		spans = spans[:0]
		for _, rg := range e.Ranges {
			spans = append(spans, store.Bounds{Start: rg.Start, End: rg.End})
		}
	}
	for _, b := range spans {
		if err := remove(b); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, rg := range e.Ranges {
		delete(x.seen, seenKey(&migrate.Task{Range: rg}))
	}
	return nil
}
