package fsck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// place is a partition with the spans of keys that a map gives it, as home or
// source of ranges, or as their destination.
type place struct {
	id    store.PartitionID
	spans []span // ascending
	extra []span // found later
}

// span is the keys of one range; an empty end is plus infinity.
type span struct {
	start, end []byte
	markers    bool // there may be some
}

func spanOf(rg *partmap.Range) span {
	return span{rg.Start, rg.End, rg.Phase != partmap.Settled || rg.SweepPending}
}

func (s *span) contains(key []byte) bool {
	return string(key) >= string(s.start) && (len(s.end) == 0 || string(key) < string(s.end))
}

// find returns the span of a key; keys have to come in order.
func (p *place) find(key []byte) *span {
	for len(p.spans) > 0 && len(p.spans[0].end) > 0 && string(key) >= string(p.spans[0].end) {
		p.spans = p.spans[1:]
	}
	if len(p.spans) > 0 && p.spans[0].contains(key) {
		return &p.spans[0]
	}
	for i := range p.extra {
		if p.extra[i].contains(key) {
			return &p.extra[i]
		}
	}
	return nil
}

// walk goes over the ranges of a map and checks the rows of each partition. An
// older root serves as well as the newest: partitions only lose ranges, and what
// looks wrong is looked at under the newest one.
func (c *Checker) walk(ctx context.Context, b bucket, root *partmap.Root) error {
	g, gctx := c.group(ctx)
	check := func(p *place) {
		if p != nil {
			g.Go(func() error { return c.partition(gctx, b, p) })
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
				home.spans = append(home.spans, spanOf(&rg))
				if dest != nil && dest.id != rg.To {
					check(dest)
					dest = nil
				}
				if !rg.To.IsZero() {
					if dest == nil {
						dest = &place{id: rg.To}
					}
					dest.spans = append(dest.spans, spanOf(&rg))
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
		// The map was whole a moment ago. If it has moved on the old nodes have been
		// collected: go on with the new ones.
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
		return c.problem(ctx, f, nil)
	}
}

func (c *Checker) reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) (blob []byte, err error) {
		err = c.retry(ctx, func() (err error) {
			blob, err = c.s.Node(ctx, id, n)
			return err
		})
		return blob, err
	}
}

// tally gathers rows of one partition with the same trouble.
type tally struct {
	kind   Kind
	n      int64
	key    []byte
	ts     store.Timestamp // the highest
	mended int64
	err    error // of mending
}

func (t *tally) add(row *store.Row) {
	if t.n == 0 {
		t.key = bytes.Clone(row.Key)
	}
	t.n++
	t.ts = max(t.ts, row.Timestamp)
}

// mend notes what came of mending one row.
func (t *tally) mend(err error) {
	if err != nil {
		t.err = err
		return
	}
	t.mended++
}

// scan is the check of one partition.
type scan struct {
	c      *Checker
	b      bucket
	place  *place
	p      store.Partition
	tallys map[Kind]*tally
}

func (x *scan) tally(k Kind) *tally {
	if x.tallys[k] == nil {
		x.tallys[k] = &tally{kind: k}
	}
	return x.tallys[k]
}

// partition reads all rows of a partition, also outside of its ranges.
func (c *Checker) partition(ctx context.Context, b bucket, p *place) error {
	select {
	case c.scans <- struct{}{}:
		defer func() { <-c.scans }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.parts.Add(1)
	x := &scan{c: c, b: b, place: p, p: store.Partition{Bucket: b.id, ID: p.id}, tallys: map[Kind]*tally{}}
	err := c.pages(ctx, x.p, func(rows []store.Row) error { return x.page(ctx, rows) })
	if err != nil {
		f := c.finding(b, BrokenRows, "%v", err)
		f.Partition = p.id
		switch store.KindOf(err) {
		case store.Corrupt:
			f.Todo = "restore the store's damaged files from a copy"
		case store.TooMuchDeadData:
			f.Severity, f.Todo = Unchecked, "refresh the range; see \"Repair\" in docs/operations.md"
		default:
			return err
		}
		if f.Severity == Unchecked {
			c.report(f)
		} else if err := c.problem(ctx, f, nil); err != nil {
			return err
		}
	}
	return x.tell(ctx)
}

// pages reads all rows of a partition, with timestamps.
func (c *Checker) pages(ctx context.Context, p store.Partition, f func(rows []store.Row) error) error {
	var b store.Bounds
	for {
		var page store.Page
		err := c.retry(ctx, func() (err error) {
			page, err = c.rows.Slice(ctx, p, b, store.SliceOptions{Limit: c.o.PageRows, Timestamps: true})
			return err
		})
		if err != nil {
			return err
		}
		c.read.Add(int64(len(page.Rows)))
		if len(page.Rows) > 0 {
			if err := f(page.Rows); err != nil {
				return err
			}
		}
		if err := c.pace.took(ctx, len(page.Rows)); err != nil || !page.More {
			return err
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}

// page judges the rows of one page; what looks wrong is looked at again.
func (x *scan) page(ctx context.Context, rows []store.Row) error {
	future := store.Timestamp(x.c.o.Now().Add(x.c.o.Future).UnixMicro())
	var suspects []store.Row
	for i := range rows {
		row := &rows[i]
		if row.Timestamp > future {
			x.tally(FutureRow).add(row)
		}
		s := x.place.find(row.Key)
		if s == nil || store.IsMarker(row.Value) && !s.markers {
			suspects = append(suspects, *row)
			continue
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
	return nil
}

// confirm looks at suspicious rows again: under a root that is read now, which is
// after the rows were. It returns those for which the root has become too old.
func (x *scan) confirm(ctx context.Context, rows []store.Row) (left []store.Row, err error) {
	root, err := x.c.root(ctx, x.b.id)
	if err != nil {
		return nil, err
	}
	if root.State == partmap.Deleted {
		return nil, nil // the rows are looked at with those of deleted buckets
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
		s := spanOf(&rg)
		here := rg.Partition == x.p.ID || rg.To == x.p.ID
		left := here && store.IsMarker(row.Value) && !s.markers
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
			// Read before the root that has no move for it: so it belongs to none that
			// is under way, and no copy can have met what it hides without it.
			x.found(ctx, LeftMarker, row, true)
			continue
		}
		same, decided, err := x.atHome(ctx, root, rg, row)
		switch {
		case err != nil:
			return nil, err
		case !decided:
			return rows[i:], nil
		case same:
			x.found(ctx, Duplicate, row, true)
		default:
			x.found(ctx, Misplaced, row, false)
		}
	}
	return nil, nil
}

// found counts a row and, where it is of no use, deletes it at its own timestamp,
// so that nothing newer can be hit.
func (x *scan) found(ctx context.Context, k Kind, row *store.Row, useless bool) {
	t := x.tally(k)
	t.add(row)
	if useless && x.c.o.Repair {
		t.mend(x.c.retry(ctx, func() error { return x.c.rows.Delete(ctx, x.p, row.Key, row.Timestamp) }))
	}
}

// still reports whether a row is still there as it was.
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

// atHome reports whether the map's own place of a key has the same row or a newer
// one. decided is false where the map has moved on meanwhile.
func (x *scan) atHome(ctx context.Context, root *partmap.Root, rg partmap.Range, row *store.Row) (same, decided bool, err error) {
	for _, id := range []store.PartitionID{rg.Partition, rg.To} {
		if id.IsZero() {
			continue
		}
		theirs, found, err := x.c.get(ctx, store.Partition{Bucket: x.b.id, ID: id}, row.Key)
		if err != nil {
			return false, false, err
		}
		if found && !store.Newer(row, &theirs) {
			return true, true, nil
		}
	}
	now, err := x.c.root(ctx, x.b.id)
	return false, err == nil && now.Epoch == root.Epoch, err
}

// rangeOf finds the range of a key.
func (c *Checker) rangeOf(ctx context.Context, root *partmap.Root, key []byte) (partmap.Range, error) {
	for rg, err := range c.maps.Ranges(ctx, root, key) {
		return rg, err
	}
	return partmap.Range{}, store.Errorf(store.Corrupt, "the map of bucket %s has no range for a key", root.Bucket)
}

// tell reports what was found in the partition.
func (x *scan) tell(ctx context.Context) error {
	for _, k := range []Kind{Misplaced, Duplicate, LeftMarker, UnknownCell, FutureRow} {
		t := x.tallys[k]
		if t == nil {
			continue
		}
		f := x.c.finding(x.b, k, "%d", t.n)
		f.Partition, f.Key, f.Count = x.p.ID, t.key, t.n
		done := ""
		switch k {
		case Misplaced:
			f.Text = fmt.Sprintf("%d rows outside of the ranges that the map gives the partition, which are not where the map says, either: no listing shows them", t.n)
			f.Todo = "were deleted rows brought back (see \"Repair\" in docs/operations.md), or was the map restored from an old copy? Put the keys again if they are wanted"
		case Duplicate:
			f.Text = fmt.Sprintf("%d rows outside of the ranges that the map gives the partition; their keys are where the map says, too", t.n)
			done = "%d deleted"
		case LeftMarker:
			f.Text = fmt.Sprintf("%d markers in ranges that are settled and swept: no listing shows them, but they take place", t.n)
			done = "%d swept"
		case UnknownCell:
			f.Text = fmt.Sprintf("%d rows that are neither entries nor markers: reading them fails", t.n)
			f.Todo = "put or delete the keys; only evenkeel may write to the table"
		case FutureRow:
			f.Text = fmt.Sprintf("%d rows written in the future, up to %s", t.n, time.UnixMicro(int64(t.ts)).UTC().Format(time.RFC3339))
			f.Todo = "nothing replaces or deletes them before that time; look at the clocks of the clients"
		}
		var mend func() (string, error)
		if done != "" {
			mend = func() (string, error) {
				if t.err != nil {
					return "", fmt.Errorf("of %d rows, %d done: %w", t.n, t.mended, t.err)
				}
				return fmt.Sprintf(done, t.mended), nil
			}
		}
		if err := x.c.problem(ctx, f, mend); err != nil {
			return err
		}
	}
	return nil
}
