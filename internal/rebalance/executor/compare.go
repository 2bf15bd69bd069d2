package executor

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// compare makes the destination hold every row of the source or a newer one, and no copy of
// a row that the source has lost. It copies what the destination lacks, which are writes that
// arrived late, and deletes the copies that the source lacks, for which deletes arrived late.
// One reader of the source runs ahead of several of the destination. Each page is read in the
// source first.
func (x *Executor) compare(ctx context.Context, t *move.Task) error {
	src, dst := x.partition(t.Range.Partition), x.partition(t.Range.To)
	highest := store.Timestamp(0) // the reader's
	g, gctx := errgroup.WithContext(ctx)
	pages := make(chan page)
	rest := bounds(t) // the bounds behind the source's rows
	g.Go(func() error {
		defer close(pages)
		return x.scan(gctx, x.o.Pace, src, rest, func(read time.Time, rows []store.Row) error {
			for i := range rows {
				highest = max(highest, rows[i].Timestamp)
			}
			p := page{rows: rows, read: read}
			last := rows[len(rows)-1].Key
			p.bounds = upTo(rest, last)
			rest.Start, rest.StartExclusive = last, true
			return send(gctx, pages, p)
		})
	})
	for range min(x.writers(), comparers) {
		g.Go(func() error {
			for p := range pages {
				if err := x.comparePage(gctx, t, src, dst, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := x.compareRest(ctx, t, src, dst, rest); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.unsure, rangeKey(t))
	x.seen[rangeKey(t)] = highest // kept for the removal
	return nil
}

// comparers is the number of pages of a range compared at once. With the reader they keep two
// processors busy; each holds up to two pages in memory.
const comparers = 2

// page is the rows of the source within bounds: from behind the page before up to its own
// last row.
type page struct {
	rows   []store.Row
	read   time.Time // before the read began
	bounds store.Bounds
}

// comparePage copies what the destination lacks of a page, and deletes copies there that the
// page lacks.
func (x *Executor) comparePage(ctx context.Context, t *move.Task, src, dst store.Partition, p page) error {
	d, err := x.differ(ctx, dst, p)
	if err != nil {
		return err
	}
	x.count(t, func(c *Progress) { c.Compared += int64(len(p.rows)) })
	for _, b := range []batch{{rows: d.missing, read: p.read}, {rows: d.tied, read: p.read, tied: true}} {
		if err := x.mend(ctx, t, src, dst, b); err != nil {
			return err
		}
	}
	// The source may have lost what was just copied, while the copy was on its way.
	return x.uncopy(ctx, t, src, dst, append(d.orphans, d.missing...))
}

// mend writes rows that the destination lacks.
func (x *Executor) mend(ctx context.Context, t *move.Task, src, dst store.Partition, b batch) error {
	x.count(t, func(c *Progress) { c.Mended += int64(len(b.rows)) })
	for len(b.rows) > 0 {
		n := x.fits(b.rows)
		if err := x.failpoint(ctx, "compare batch", string(b.rows[0].Key)); err != nil {
			return err
		}
		if err := x.write(ctx, t, src, dst, batch{b.rows[:n], b.read, b.tied}); err != nil {
			return err
		}
		b.rows = b.rows[n:]
	}
	return nil
}

// compareRest deletes copies with keys above all of the source's rows. No copy is on its way any
// more. It also deletes the copies of unknown outcome, which may still arrive.
func (x *Executor) compareRest(ctx context.Context, t *move.Task, src, dst store.Partition, rest store.Bounds) error {
	err := x.scanPresent(ctx, x.o.Pace, dst, rest, func(rows []store.Row) error {
		return x.uncopy(ctx, t, src, dst, matching(rows, store.IsCopied))
	})
	if err != nil {
		return err
	}
	var unsure []store.Row
	x.mu.Lock()
	for key, ts := range x.unsure[rangeKey(t)] {
		unsure = append(unsure, store.Row{Key: []byte(key), Timestamp: ts})
	}
	x.mu.Unlock()
	return x.uncopy(ctx, t, src, dst, unsure)
}

// difference is the result of comparing a page.
type difference struct {
	// missing are rows of which the destination has neither the same nor a newer one, but
	// for those in tied: there a client wrote a smaller value at the same timestamp.
	missing, tied []store.Row
	// orphans are copies in the destination without the same or a newer row in the page.
	orphans []store.Row
}

// differ reads the destination within a page's bounds.
func (x *Executor) differ(ctx context.Context, dst store.Partition, p page) (d difference, err error) {
	b, rows := p.bounds, p.rows
	last := rows[len(rows)-1].Key
	for {
		var got store.Page
		err := x.retry(ctx, func() (err error) {
			got, err = x.rows.Slice(ctx, dst, b, store.SliceOptions{Limit: x.o.PageRows, Timestamps: true})
			return err
		})
		if err != nil {
			return d, err
		}
		for j := range got.Rows {
			theirs := &got.Rows[j]
			if string(theirs.Key) > string(last) { // whose successor would be too long
				d.missing = append(d.missing, rows...)
				return d, nil
			}
			for string(rows[0].Key) < string(theirs.Key) {
				d.missing, rows = append(d.missing, rows[0]), rows[1:]
			}
			copied := store.IsCopied(theirs.Value)
			if string(rows[0].Key) > string(theirs.Key) {
				if copied {
					d.orphans = append(d.orphans, *theirs)
				}
				continue
			}
			ours := rows[0]
			switch rows = rows[1:]; {
			case store.Newer(&ours, theirs) && ours.Timestamp == theirs.Timestamp && !copied:
				d.tied = append(d.tied, ours)
			case store.Newer(&ours, theirs):
				d.missing = append(d.missing, ours)
			case copied && ours.Timestamp < theirs.Timestamp:
				d.orphans = append(d.orphans, *theirs)
			}
			if len(rows) == 0 {
				return d, nil
			}
		}
		if !got.More {
			d.missing = append(d.missing, rows...)
			return d, nil
		}
		b.Start, b.StartExclusive = got.Rows[len(got.Rows)-1].Key, true
	}
}

// uncopy deletes copies whose rows the source has lost, each at its own timestamp: newer rows
// stay, and a copy that arrives later stays hidden. Newer rows that the source has by now are
// copied instead. The order makes the deletions safe: it reads the source again, since a row
// may have arrived and been copied since; then it checks that the map still says verifying,
// or the source may have been emptied.
func (x *Executor) uncopy(ctx context.Context, t *move.Task, src, dst store.Partition, copies []store.Row) error {
	for len(copies) > 0 {
		read, now := x.o.Now(), make([]store.Row, len(copies))
		err := x.each(ctx, len(copies), func(ctx context.Context, i int) (err error) {
			now[i], _, err = x.rows.Get(ctx, src, copies[i].Key)
			return err
		})
		if err != nil {
			return err
		}
		var lost, late []store.Row
		for i := range copies {
			if now[i].Timestamp < copies[i].Timestamp { // 0: it has nothing
				lost = append(lost, copies[i])
			} else if now[i].Timestamp > copies[i].Timestamp {
				late = append(late, now[i])
			}
		}
		if err := x.deleteLost(ctx, t, dst, lost); err != nil {
			return err
		}
		if err := x.mend(ctx, t, src, dst, batch{rows: late, read: read}); err != nil {
			return err
		}
		copies = late
	}
	return nil
}

// deleteLost deletes copies if the map still says that their range is verifying.
func (x *Executor) deleteLost(ctx context.Context, t *move.Task, dst store.Partition, lost []store.Row) error {
	if len(lost) == 0 {
		return nil
	}
	if err := x.failpoint(ctx, "compare lost", string(lost[0].Key)); err != nil {
		return err
	}
	root, err := x.maps.Load(ctx, x.bucket)
	if err != nil {
		return err
	}
	if phase, _ := root.BatchOf(t.Batch); phase != partmap.Verifying {
		return store.Errorf(store.Conflict, "somebody else has compared batch %d", t.Batch)
	}
	return x.each(ctx, len(lost), func(ctx context.Context, i int) error {
		return x.rows.Delete(ctx, dst, lost[i].Key, lost[i].Timestamp)
	})
}

// each makes a store call for each of n rows, several at once, with retries.
func (x *Executor) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(x.o.Writers, 0), writers))
	for i := range n {
		g.Go(func() error { return x.retry(gctx, func() error { return f(gctx, i) }) })
	}
	return g.Wait()
}

// rangeKey identifies the range of a task in what an executor remembers.
func rangeKey(t *move.Task) string {
	return t.Range.Partition.String() + string(t.Range.Start)
}

// remove removes ranges from their source. The removal has a timestamp above those of all rows there and of all rows
// that may still arrive, so that late writes stay hidden. Only notes stay, which say where the rows are: so the ranges
// are removed by their bounds, and never the whole partition, where the notes of ranges lie that have left before. An
// executor that has not compared the ranges itself first copies again the rows that are missing: in a restored store
// the rows may be older than the map.
func (x *Executor) remove(ctx context.Context, e *move.Task) error {
	src := x.partition(e.Range.Partition)
	// First: without the time nothing is removed.
	highest, err := x.maps.Above(ctx)
	if err != nil {
		return err
	}
	for _, rg := range e.Ranges {
		t := move.Task{Range: rg}
		x.mu.Lock()
		seen, compared := x.seen[rangeKey(&t)]
		x.mu.Unlock()
		if highest = max(highest, seen); compared {
			continue
		}
		dst := x.partition(rg.To)
		err := x.scan(ctx, x.o.Pace, src, bounds(&t), func(read time.Time, rows []store.Row) error {
			for i := range rows {
				highest = max(highest, rows[i].Timestamp)
			}
			return x.carry(ctx, dst, read, rows)
		})
		if err != nil {
			return err
		}
	}
	if err := x.leave(ctx, src, e.Ranges, highest+2); err != nil {
		return err
	}
	var spans []store.Bounds
	for _, rg := range e.Ranges {
		if n := len(spans); n > 0 && string(spans[n-1].End) == string(rg.Start) {
			spans[n-1].End = rg.End
		} else {
			spans = append(spans, store.Bounds{Start: rg.Start, End: rg.End})
		}
	}
	for _, b := range spans {
		if err := x.retry(ctx, func() error { return x.rows.Remove(ctx, src, b, highest+1) }); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, rg := range e.Ranges {
		delete(x.seen, rangeKey(&move.Task{Range: rg}))
		delete(x.unsure, rangeKey(&move.Task{Range: rg}))
	}
	return nil
}
