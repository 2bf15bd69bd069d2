package repair

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// place is a partition of a bucket, with the ranges that the bucket's partition map has in it. For a range that moves,
// the partition may be the old or the new one.
type place struct {
	id    store.PartitionID
	spans []span // ascending
	extra []span // spans found later, under a newer root
}

// span is the interval of keys of one range in one of its partitions. It says which kinds of rows the partition may
// have there. An empty end means that the keys have no upper end.
type span struct {
	store.Bounds
	markers bool // the span may have markers
	leaving bool // the partition is the source, and readers look at the destination only
	// source is the old partition, if the range moves to this partition and readers still read the old one. Then copies
	// in this interval count only as long as the old partition has the same rows.
	source store.PartitionID
}

// spanOf returns the interval of keys of the range rg, and which kinds of rows the partition id may have there, such as
// deletion markers. id is the old or the new partition of rg.
func spanOf(rg *partmap.Range, id store.PartitionID) span {
	rules := rg.Phase.Rules()
	s := span{
		Bounds: store.Bounds{Start: rg.Start, End: rg.End}, markers: rg.Phase != partmap.Settled || rg.SweepPending,
		leaving: rg.Partition == id && !rules.ReadSource,
	}
	if rg.To == id && rules.ReadSource {
		s.source = rg.Partition
	}
	return s
}

// find returns the interval of keys, of one of the partition's ranges, that contains the key. The result is nil if the
// key lies in no range of the partition. The keys of successive calls must ascend.
func (p *place) find(key []byte) *span {
	for len(p.spans) > 0 && len(p.spans[0].End) > 0 && string(key) >= string(p.spans[0].End) {
		p.spans = p.spans[1:]
	}
	if len(p.spans) > 0 && store.Within(key, p.spans[0].Bounds) {
		return &p.spans[0]
	}
	for i := range p.extra {
		if store.Within(key, p.extra[i].Bounds) {
			return &p.extra[i]
		}
	}
	return nil
}

// each calls f for every partition that the partition map of the bucket b names, with the intervals of keys that it
// has. Several calls of f run at the same time. The given root of the map need not be the newest.
func (c *Checker) each(ctx context.Context, b bucket, root *partmap.Root,
	f func(context.Context, bucket, *place) error) error {
	// An older root is good enough: partitions only lose ranges, and rows that look wrong are checked again under the
	// newest root.
	g, gctx := c.group(ctx)
	check := func(p *place) {
		if p != nil {
			g.Go(func() error { return f(gctx, b, p) })
		}
	}
	var from []byte
	for {
		var home, dest *place
		err := func() error {
			for rg, err := range partmap.Ranges(root, c.reader(gctx, b.id), from, nil) {
				if err != nil {
					return err
				}
				if home == nil || home.id != rg.Partition {
					check(home)
					home, from = &place{id: rg.Partition}, rg.Start
				}
				home.spans = append(home.spans, spanOf(&rg, rg.Partition))
				if dest != nil && dest.id != rg.To {
					check(dest)
					dest = nil
				}
				if !rg.To.IsZero() {
					if dest == nil {
						dest = &place{id: rg.To}
					}
					dest.spans = append(dest.spans, spanOf(&rg, rg.To))
				}
			}
			return nil
		}()
		if err == nil {
			check(home)
			check(dest)
			return g.Wait()
		}
		if k := store.KindOf(err); k != store.NotFound && k != store.Corrupt {
			return errors.Join(err, g.Wait())
		}
		// The map was valid a moment ago. If it has changed since, its old nodes may have been collected. Then the
		// check goes on with the new map.
		now, lerr := c.root(gctx, b.id)
		if lerr == nil && now.Epoch > root.Epoch && now.State != partmap.Deleted {
			root = now
			continue
		}
		if werr := g.Wait(); werr != nil || lerr != nil {
			return errors.Join(werr, lerr)
		}
		if now.State == partmap.Deleted {
			return nil
		}
		c.suspect(b.id)
		f := c.finding(b, BrokenMap, "epoch %d: %v", root.Epoch, err)
		f.Todo = restoreTodo
		c.report(f)
		return nil
	}
}

func (c *Checker) reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) {
		return retried(ctx, c, func() ([]byte, error) { return c.s.Node(ctx, id, n) })
	}
}

// tally counts the problems of one kind in the rows of one partition: the rows, and how many of them were repaired.
type tally struct {
	kind   Kind
	n      int64
	key    []byte
	ts     store.Timestamp // the highest
	mended int64
	err    error // the last error of mending
}

func (t *tally) add(row *store.Row) {
	if t.n == 0 {
		t.key = bytes.Clone(row.Key)
	}
	t.n++
	t.ts = max(t.ts, row.Timestamp)
}

// mend counts one row as repaired if err is nil. If err is not nil, it says why the repair failed, and mend keeps it
// for the report.
func (t *tally) mend(err error) {
	if err != nil {
		t.err = err
		return
	}
	t.mended++
}

// scan is the check of the rows of one partition, while it goes on. It counts the rows with problems.
type scan struct {
	c      *Checker
	b      bucket
	place  *place
	p      store.Partition
	tallys map[Kind]*tally
	sweeps bool // the scan only sweeps markers
}

func (x *scan) tally(k Kind) *tally {
	if x.tallys[k] == nil {
		x.tallys[k] = &tally{kind: k}
	}
	return x.tallys[k]
}

// partition checks all rows of the partition p of the bucket b, including rows outside the partition's ranges.
func (c *Checker) partition(ctx context.Context, b bucket, p *place) error {
	select {
	case c.scans <- struct{}{}:
		defer func() { <-c.scans }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.count(&c.sum.Partitions, 1)
	return c.newScan(b, p, false).run(ctx)
}

func (c *Checker) newScan(b bucket, p *place, sweeps bool) *scan {
	return &scan{c: c, b: b, place: p, p: store.Partition{Bucket: b.id, ID: p.id}, tallys: map[Kind]*tally{},
		sweeps: sweeps}
}

func (x *scan) run(ctx context.Context) error {
	c := x.c
	err := c.pages(ctx, x.p, func(rows []store.Row) error { return x.page(ctx, rows) })
	if err != nil {
		f := c.finding(x.b, BrokenRows, "%v", err)
		f.Partition = x.p.ID
		switch store.KindOf(err) {
		case store.Corrupt:
			f.Todo = "restore the store's damaged files from a copy"
		case store.TooMuchDeadData:
			f.Severity, f.Todo = Unchecked, "refresh the range; see \"Repair\" in docs/damage.md"
		default:
			return err
		}
		c.report(f)
	}
	x.reportRows(ctx)
	return nil
}

// mark records that the partition p has deletion markers, which are deleted at the end of the check. The argument
// bucket is the name of its bucket, or empty if the name is not known.
func (c *Checker) mark(p store.Partition, bucket string) {
	c.mu.Lock()
	c.marked[p] = cmp.Or(bucket, c.marked[p])
	c.mu.Unlock()
}

// sweeps deletes the deletion markers that the check has found and that no move needs. It leaves buckets with rows
// outside ranges alone: their markers may have to hide rows that are copied back later.
func (c *Checker) sweeps(ctx context.Context) error {
	names := map[store.BucketID]string{}
	for p, name := range c.marked {
		names[p.Bucket] = cmp.Or(name, names[p.Bucket])
	}
	for id, name := range names {
		root, err := c.root(ctx, id)
		if err != nil {
			return err
		}
		if root.State == partmap.Deleted || c.suspected(id) {
			continue
		}
		err = c.each(ctx, bucket{id, name}, root, func(ctx context.Context, b bucket, p *place) error {
			if _, marked := c.marked[store.Partition{Bucket: b.id, ID: p.id}]; !marked {
				return nil
			}
			return c.newScan(b, p, true).run(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pages calls f with all rows of a partition, page by page, with timestamps. It leaves out notes, which are rows that
// moves leave in old partitions.
func (c *Checker) pages(ctx context.Context, p store.Partition, f func(rows []store.Row) error) error {
	return c.pagesWithin(ctx, p, store.Bounds{}, f)
}

func (c *Checker) slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	return retried(ctx, c, func() (store.Page, error) { return c.rows.Slice(ctx, p, b, o) })
}

func (c *Checker) pagesWithin(ctx context.Context, p store.Partition, b store.Bounds,
	f func(rows []store.Row) error) error {
	for {
		page, err := retried(ctx, c, func() (store.Page, error) {
			return c.noted.Slice(ctx, p, b, store.SliceOptions{Limit: c.o.PageRows, Timestamps: true})
		})
		if err != nil {
			return err
		}
		read := len(page.Rows)
		if read > 0 {
			b.Start, b.StartExclusive = page.Rows[read-1].Key, true
		}
		rows := c.takeNotes(p, page.Rows)
		c.count(&c.sum.Rows, len(rows))
		if len(rows) > 0 {
			if err := f(rows); err != nil {
				return err
			}
		}
		if err := c.pace.Take(ctx, read); err != nil || !page.More {
			return err
		}
	}
}

// page checks the rows of one page of the partition. Rows that look wrong are checked again, under a newer version of
// the bucket's partition map.
func (x *scan) page(ctx context.Context, rows []store.Row) error {
	latest := store.Timestamp(x.c.o.Now().Add(future).UnixMicro())
	var suspects, leaving []store.Row
	copies := map[store.PartitionID][]store.Row{} // by their sources
	for i := range rows {
		row := &rows[i]
		if x.sweeps && !cells.IsMarker(row.Value) {
			continue
		}
		if row.Timestamp > latest && !x.sweeps {
			x.tally(FutureRow).add(row)
		}
		s := x.place.find(row.Key)
		if s == nil || cells.IsMarker(row.Value) && !s.markers {
			suspects = append(suspects, *row)
			continue
		}
		if s.leaving {
			leaving = append(leaving, *row)
		}
		if !s.source.IsZero() && cells.IsCopied(row.Value) {
			copies[s.source] = append(copies[s.source], *row)
		}
		if _, _, err := store.EntryValue(row.Value); err != nil {
			x.tally(UnknownCell).add(row)
		}
	}
	for len(suspects) > 0 {
		left, err := x.confirm(ctx, suspects)
		if err != nil {
			return err
		}
		suspects = left
	}
	if x.sweeps {
		return nil
	}
	for source, rows := range copies {
		if err := x.outrun(ctx, source, rows); err != nil {
			return err
		}
	}
	if len(leaving) > 0 {
		return x.uncopied(ctx, leaving)
	}
	return nil
}

// outrun checks copies that a move has made in this partition. They count only as long as the old partition has the
// same rows. If the old partition has an older row with the same key, it was restored from an earlier moment than the
// copy. Such a copy is reported. If the check repairs, the copy becomes an ordinary entry, which counts.
func (x *scan) outrun(ctx context.Context, source store.PartitionID, copies []store.Row) error {
	// The old partition never had the row that was copied. The move would take the copy for deleted, and its deletion
	// would hide the older row as well.
	p := store.Partition{Bucket: x.p.Bucket, ID: source}
	return x.c.match(ctx, p, copies, func(i int, theirs *store.Row) error {
		row := &copies[i]
		if theirs.Timestamp >= row.Timestamp {
			return nil
		}
		t := x.tally(OutrunCopy)
		t.add(row)
		if x.c.o.Repair {
			here := store.Row{Key: row.Key, Value: cells.Original(row.Value), Timestamp: row.Timestamp}
			t.mend(x.c.retry(ctx, func() error { return x.c.rows.Put(ctx, x.p, here) }))
		}
		return nil
	})
}

// uncopied checks rows that are about to be removed from the partition, since their range has moved to another one
// (phase draining). If the new partition lacks a row, uncopied reports the row and, if the check repairs, copies it.
func (x *scan) uncopied(ctx context.Context, rows []store.Row) error {
	// The rows were compared before that phase, so the new partition has each of them, unless the rows are older than
	// the bucket's partition map. In that phase deletes leave markers in the new partition. So a row that is missing
	// there was never deleted.
	missing, _, err := x.c.missing(ctx, x.b.id, rows)
	if errors.Is(err, errGone) {
		return nil
	}
	for i := 0; err == nil && i < len(missing); i++ {
		l := &missing[i]
		there := false
		if l.rg.Partition != x.p.ID || l.rg.Phase != partmap.Draining {
			continue
		}
		if there, err = x.still(ctx, &l.row); err != nil || !there {
			continue
		}
		t := x.tally(Uncopied)
		t.add(&l.row)
		if x.c.o.Repair {
			t.mend(x.c.adoptOne(ctx, x.b.id, &l.row))
		}
	}
	return err
}

// confirm checks again rows that looked wrong, by a newer root of the bucket's partition map, and counts those that are
// wrong. The result `left` has the rows that could not be checked, because this root has become too old meanwhile. The
// caller must call confirm again with these rows.
func (x *scan) confirm(ctx context.Context, rows []store.Row) (left []store.Row, err error) {
	root, err := x.c.root(ctx, x.b.id)
	if err != nil {
		return nil, err
	}
	if root.State == partmap.Deleted {
		return nil, nil // the check of orphans covers the rows of deleted buckets
	}
	var rg partmap.Range
	for i := range rows {
		row := &rows[i]
		if i == 0 || !rg.Contains(row.Key) {
			if rg, err = x.c.rangeOf(ctx, root, row.Key); errors.Is(err, mapclient.ErrStale) {
				return rows[i:], nil
			}
			if err != nil {
				return nil, err
			}
		}
		s := spanOf(&rg, x.p.ID)
		here := rg.Partition == x.p.ID || rg.To == x.p.ID
		left := here && cells.IsMarker(row.Value) && !s.markers
		if here && !left {
			x.place.extra = append(x.place.extra[:min(len(x.place.extra), 8)], s)
			if _, _, err := store.EntryValue(row.Value); err != nil {
				x.tally(UnknownCell).add(row)
			}
			continue
		}
		there, err := x.still(ctx, row)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		if left {
			// The marker was read before the root, in which its range does not move. So the marker belongs to no move
			// in flight, and every copy that it must hide was written before.
			x.found(ctx, LeftMarker, row, x.sweeps && x.c.keeps(x.b.id) == 0)
			continue
		}
		if x.sweeps {
			continue
		}
		missing, _, err := x.c.missing(ctx, x.b.id, rows[i:i+1])
		switch {
		case errors.Is(err, errGone):
			return nil, nil
		case err != nil:
			return nil, err
		case len(missing) == 0:
			x.found(ctx, Duplicate, row, true)
		default:
			x.misplaced(ctx, row)
		}
	}
	return nil, nil
}

// found counts a row that has a problem of kind k. If useless is true and the check repairs, found also deletes the
// row. The deletion has the row's own timestamp, so that newer rows stay.
func (x *scan) found(ctx context.Context, k Kind, row *store.Row, useless bool) {
	t := x.tally(k)
	t.add(row)
	if useless && x.c.o.Repair {
		t.mend(x.c.retry(ctx, func() error { return x.c.rows.Delete(ctx, x.p, row.Key, row.Timestamp) }))
	}
}

// misplaced handles a row that lies outside the ranges of its partition, and that readers find in no other partition.
// Its range has moved away without it. The row is counted, and then
//   - deleted, if the operator discards the partition,
//   - moved to where the bucket's partition map says, if Options.Adopt is AdoptAll, or
//   - left as it is.
func (x *scan) misplaced(ctx context.Context, row *store.Row) {
	t := x.tally(Misplaced)
	t.add(row)
	err := error(nil)
	switch {
	case x.discards():
	case x.c.o.Adopt == AdoptAll:
		err = x.c.adoptOne(ctx, x.b.id, row)
	default:
		x.c.keep(x.b.id, misplaced)
		return
	}
	if err == nil {
		err = x.c.retry(ctx, func() error { return x.c.rows.Delete(ctx, x.p, row.Key, row.Timestamp) })
	}
	t.mend(err)
	if err != nil {
		x.c.keep(x.b.id, misplaced)
	}
}

// discards reports whether the operator has asked to delete the rows of the partition that are outside its ranges.
func (x *scan) discards() bool { return x.c.o.Repair && slices.Contains(x.c.o.Discard, x.p.ID) }

// still reports whether the partition still has the given row, unchanged. A row that has changed or gone was being
// written or moved when it was read, and is no problem.
func (x *scan) still(ctx context.Context, row *store.Row) (bool, error) {
	now, found, err := x.c.get(ctx, x.p, row.Key)
	return found && now.Timestamp == row.Timestamp && bytes.Equal(now.Value, row.Value), err
}

func (c *Checker) get(ctx context.Context, p store.Partition, key []byte) (row store.Row, found bool, err error) {
	err = c.retry(ctx, func() (err error) {
		row, found, err = c.rows.Get(ctx, p, key)
		return err
	})
	return row, found, err
}

// rangeOf returns the range of the bucket's partition map that contains a key. It fails with mapclient.ErrStale if the
// given root of the map is too old to be read.
func (c *Checker) rangeOf(ctx context.Context, root *partmap.Root, key []byte) (partmap.Range, error) {
	return retried(ctx, c, func() (partmap.Range, error) { return firstRange(root, c.maps.Ranges(ctx, root, key)) })
}

func firstRange(root *partmap.Root, ranges iter.Seq2[partmap.Range, error]) (partmap.Range, error) {
	for rg, err := range ranges {
		return rg, err
	}
	return partmap.Range{}, store.Errorf(store.Corrupt, "the map of bucket %s has no range for a key", root.Bucket)
}

// rowProblems are the kinds of problems that rows may have, in the order in which they are reported. For each kind
// there are texts for the report: the problem (text), advice for the operator (todo), and what a repair has done
// (done). done is empty if the problem is not repaired. text and done have a place for the number of rows.
var rowProblems = []struct {
	kind             Kind
	text, todo, done string
}{
	{Misplaced, "%d rows outside of the ranges that the map gives the partition, which are not where the map says," +
		" either: no listing shows them", "if the rows were restored from an older copy than the maps: end all" +
		" servers, then --adopt-all copies them to where the map says. If nothing was restored, they are deleted" +
		" rows that came back (see \"Repair\" in docs/damage.md)", "%d copied to where the map says"},
	{Uncopied, "%d rows of ranges that are draining, which are not in their destinations: no listing shows them," +
		" and the next step of the move removes them",
		"are the rows older than the map? End all servers, then --repair copies them", "%d copied"},
	{Duplicate, "%d rows outside of the ranges that the map gives the partition; their keys are where the map" +
		" says, too", "", "%d deleted"},
	{OutrunCopy, "%d copies whose sources have older rows: these are of an earlier moment, and the move would lose both",
		"start no server: its mover would take the copies for deleted; --adopt keeps them", "%d kept"},
	{LeftMarker, "%d markers in ranges that are settled and swept: no listing shows them, but they take place", "",
		"%d swept"},
	{UnknownCell, "%d rows that are neither entries nor markers: reading them fails",
		"put or delete the keys; only evenkeel may write to the table", ""},
	{FutureRow, "%d rows written in the future, up to ",
		"nothing replaces or deletes them before that time; look at the clocks of the clients", ""},
}

// reportRows reports the problems that were found in the rows of the partition, one finding for each kind.
func (x *scan) reportRows(ctx context.Context) {
	for _, pr := range rowProblems {
		t := x.tallys[pr.kind]
		if t == nil {
			continue
		}
		switch {
		case pr.kind == Misplaced && x.discards():
			pr.done = "%d discarded"
		case pr.kind == Misplaced && x.c.o.Adopt != AdoptAll:
			pr.done = ""
		case pr.kind == LeftMarker && x.c.o.Repair && !x.sweeps:
			x.c.mark(x.p, x.b.name) // the markers are reported when they are swept
			continue
		case pr.kind == LeftMarker && x.c.keeps(x.b.id) != 0:
			pr.done = ""
			pr.todo = "they may hide rows that no range has: they are swept once those are adopted or removed"
		case pr.kind == FutureRow:
			pr.text += inText(int64(t.ts))
		}
		f := x.c.finding(x.b, pr.kind, pr.text, t.n)
		f.Partition, f.Key, f.Count, f.Todo = x.p.ID, t.key, t.n, pr.todo
		var mend func() (string, error)
		if pr.done != "" {
			mend = func() (string, error) {
				if t.err != nil {
					return "", fmt.Errorf("of %d rows, %d done: %w", t.n, t.mended, t.err)
				}
				return fmt.Sprintf(pr.done, t.mended), nil
			}
		}
		x.c.problem(ctx, f, mend)
	}
}
