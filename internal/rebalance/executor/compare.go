package executor

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// compare makes the destination of a moving range (the new partition) agree with the source (the old one), after the
// copy:
//   - It copies rows that the destination lacks, since they were written late.
//   - It deletes copies whose rows the source has lost, since they were deleted late.
//
// Afterwards the destination has each row of the source, or a newer row with the same key.
func (x *Executor) compare(ctx context.Context, t *move.Task) error {
	// One reader of the source runs ahead of several readers of the destination. Each page is read in the source first.
	src, dst := x.partition(t.Range.Partition), x.partition(t.Range.To)
	highest := store.Timestamp(0) // used by the reader only, until it has ended
	g, gctx := errgroup.WithContext(ctx)
	pages := make(chan page)
	rest := bounds(t) // the part of the range that the source's reader has not reached
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

// comparers is the maximum number of goroutines that compare pages of rows of one range at the same time. Another
// goroutine reads the pages, and together they keep two processors busy. Each comparing goroutine holds up to two pages
// in memory.
const comparers = 2

// page is a page of rows that was read from the old partition of a moving range. Its bounds are the interval of keys
// that the page covers: the keys above the previous page, up to and including the last row.
type page struct {
	rows   []store.Row
	read   time.Time // before the read began
	bounds store.Bounds
}

// comparePage makes dst, the new partition of a moving range, agree with the page p of rows of src, the old partition.
// It copies rows that dst lacks, and deletes copies in dst whose rows src no longer has.
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
	// The source may have lost rows that were just copied, while the copies were in transit.
	return x.uncopy(ctx, t, src, dst, append(d.orphans, d.missing...))
}

// mend copies the rows of b, which the new partition of a moving range lacks, from the old partition src to the new
// one, dst. It writes the rows in store calls of limited size.
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

// compareRest ends the comparison of the two partitions of a moving range, src (the old one) and dst (the new one). It
// deletes copies in dst that src does not have:
//   - copies above the highest row of src, in the interval of keys `rest`, and
//   - copies whose writes had an unknown outcome and may still arrive, if src has lost the rows.
func (x *Executor) compareRest(ctx context.Context, t *move.Task, src, dst store.Partition, rest store.Bounds) error {
	err := x.scanPresent(ctx, x.o.Pace, dst, rest, func(rows []store.Row) error {
		return x.uncopy(ctx, t, src, dst, matching(rows, cells.IsCopied))
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

// difference is the result of comparing one page of rows of the old partition of a moving range with the new partition.
type difference struct {
	// missing are rows of the old partition that the new one lacks, and of which it has no newer version. tied are such
	// rows for which the new partition has a client's row with the same key and timestamp, and a smaller value.
	missing, tied []store.Row
	// orphans are copies in the new partition that are not in the page of the old one: the page has neither the same
	// row nor a newer one.
	orphans []store.Row
}

// differ compares the page p, which has rows of the old partition of a moving range, with dst, the new partition. It
// reads the rows of dst between the same keys, and returns what differs. It changes nothing.
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
			if string(theirs.Key) > string(last) { // the bounds could not end at last: its successor would be too long
				d.missing = append(d.missing, rows...)
				return d, nil
			}
			for string(rows[0].Key) < string(theirs.Key) {
				d.missing, rows = append(d.missing, rows[0]), rows[1:]
			}
			copied := cells.IsCopied(theirs.Value)
			if string(rows[0].Key) > string(theirs.Key) {
				if copied {
					d.orphans = append(d.orphans, *theirs)
				}
				continue
			}
			ours := rows[0]
			switch rows = rows[1:]; {
			case storekit.Newer(&ours, theirs) && ours.Timestamp == theirs.Timestamp && !copied:
				d.tied = append(d.tied, ours)
			case storekit.Newer(&ours, theirs):
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

// uncopy deletes copies from dst, the new partition of a moving range, since src, the old partition, no longer has
// their rows. If src has a newer row with the same key by now, uncopy copies the newer row instead. Each deletion has
// the timestamp of the copy. So newer rows stay, and a copy that arrives late stays deleted.
func (x *Executor) uncopy(ctx context.Context, t *move.Task, src, dst store.Partition, copies []store.Row) error {
	// The order makes the deletions safe. First src is read again, since a row may have arrived and been copied since.
	// Then deleteLost checks that the range is still being compared (phase Verifying), since later src may have been
	// emptied.
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
			if now[i].Timestamp < copies[i].Timestamp { // 0: the source has no row
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

// deleteLost deletes the given copies from dst, the new partition of a moving range, since the old partition has lost
// their rows. It fails with Conflict if another process has compared the partitions meanwhile: the range is then no
// longer in the phase Verifying.
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

// each calls f with the numbers 0 to n-1, several calls at once, and returns the first error. f makes one store call,
// and is called again a few times if that fails.
func (x *Executor) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(x.o.Writers, 0), writers))
	for i := range n {
		g.Go(func() error { return x.retry(gctx, func() error { return f(gctx, i) }) })
	}
	return g.Wait()
}

// rangeKey returns the key under which the executor's tables have the range of the task t: the id of the range's
// partition and the range's first key.
func rangeKey(t *move.Task) string {
	return t.Range.Partition.String() + string(t.Range.Start)
}

// remove deletes the rows of moved ranges from the partition that the ranges have left. Only notes stay in the
// partition: small rows that say where the moved rows are. If this executor has not compared the ranges itself, remove
// first copies rows that the new partitions lack.
func (x *Executor) remove(ctx context.Context, e *move.Task) error {
	// The removal has a timestamp above those of all rows in this partition and of all rows that may still arrive, so
	// late writes stay hidden. Only the keys of the ranges are removed, never the whole partition, which has the notes
	// of earlier moves. In a restored store the rows may be older than the bucket's partition map; then rows may be
	// missing in the new partitions.
	src := x.partition(e.Range.Partition)
	// The time is read first: nothing is removed without it.
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
