package adopt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Compare reads both sides as sorted streams. What differs is read again after a pause, and again, as writers may be
// between the two sides. With mend it is made as the source is, at the time at which it was seen; else it is reported.
func (a *Adoption) Compare(ctx context.Context, mend bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.merges())
	for _, s := range a.o.Spans {
		g.Go(func() error { return a.compare(ctx, s, mend) })
	}
	return g.Wait()
}

// suspect is a key in which the two sides seem to differ.
type suspect struct {
	key  []byte
	part int // of the source that has it; -1: none has
	// rows were read from the source before, up to the key before, or the span's bound: the key itself may be one that
	// the source can't have.
	rows   int64
	before []byte
}

// mostSuspects is how many are looked at again at a time.
const mostSuspects = 256

func (a *Adoption) compare(ctx context.Context, s Span, mend bool) error {
	var found []suspect
	settle := func() error {
		err := a.settle(ctx, found, mend)
		found = found[:0]
		return err
	}
	rows, before := int64(0), s.From
	suspects := func(key []byte, part int) error {
		if found = append(found, suspect{bytes.Clone(key), part, rows, bytes.Clone(before)}); len(found) < mostSuspects {
			return nil
		}
		return settle()
	}
	nextRow, stopRows := iter.Pull2(a.merged(ctx, s))
	defer stopRows()
	nextItem, stopItems := iter.Pull2(a.items(ctx, s, false))
	defer stopItems()
	row, err, isRow := nextRow()
	item, ierr, _ := nextItem()
	for isRow || item.Item != nil || ierr != nil {
		if err := errors.Join(err, ierr); err != nil {
			return err
		}
		order := 0
		switch {
		case item.Item == nil:
			order = -1
		case !isRow:
			order = 1
		default:
			order = bytes.Compare(row.Key, item.Key)
		}
		var failed error
		switch {
		case order > 0:
			failed = suspects(item.Key, -1)
		case row.Refused != "":
			a.counts.Refused.Add(1)
			a.report(row.Key, string(row.Refused))
		case order < 0 || !a.o.Source.Same(row.Value, item.Value):
			failed = suspects(row.Key, row.part)
		}
		if failed != nil {
			return failed
		}
		if order <= 0 {
			before = row.Key
			row, err, isRow = nextRow()
			rows++
		}
		if order >= 0 {
			item, ierr, _ = nextItem()
		}
	}
	return settle()
}

// paged is an entry of the bucket, with the time at which what differs up to it is written on the way back; nil: there
// are no more.
type paged struct {
	*listing.Item
	at store.Timestamp
}

// items lists a span of the bucket, and then its end. On the way back each page begins with a mark.
func (a *Adoption) items(ctx context.Context, s Span, back bool) iter.Seq2[paged, error] {
	return func(yield func(paged, error) bool) {
		q := listing.Query{From: s.From, To: s.To, Limit: pageRows, Bytes: pageBytes}
		for {
			var page listing.Page
			var at store.Timestamp
			err := a.patiently(ctx, func() (err error) {
				if back {
					m, err := a.o.Bucket.Mark(ctx)
					if err != nil {
						return err
					}
					at = beforeMark(m)
				}
				page, err = a.o.Bucket.List(ctx, q)
				return err
			})
			if err == nil && back {
				a.counts.Read.Add(int64(len(page.Items)))
				err = a.o.Pace.Take(ctx, len(page.Items))
			}
			if err != nil {
				yield(paged{}, err)
				return
			}
			for i := range page.Items {
				if !yield(paged{&page.Items[i], at}, nil) {
					return
				}
			}
			if q.Token = page.Next; len(q.Token) == 0 {
				yield(paged{nil, at}, nil)
				return
			}
		}
	}
}

// looks is how often a difference is looked at before it is reported, with pauses in which a writer gets from one side
// to the other.
const (
	looks     = 4
	lookPause = 250 * time.Millisecond
	// readers is how many keys are read at a time.
	readers = 16
)

// settle reads the keys of suspects again, in ascending order, and mends or reports those that differ.
func (a *Adoption) settle(ctx context.Context, found []suspect, mend bool) error {
	if mend {
		return a.mend(ctx, found)
	}
	for look := 0; len(found) > 0; look++ {
		if look > 0 {
			if err := wait.Sleep(ctx, lookPause<<look); err != nil {
				return err
			}
		}
		both, err := a.readBoth(ctx, found, hereFirst)
		if err != nil {
			return err
		}
		kept := found[:0]
		for i, b := range both {
			fault := a.difference(&b)
			switch {
			case fault == "":
			case look+1 < looks:
				kept = append(kept, found[i])
			default:
				a.counts.Different.Add(1)
				a.report(found[i].key, string(fault))
			}
		}
		found = kept
	}
	return nil
}

// mend brings what the source has after a mark. A row keeps no write time here: something at or above it may be what
// hides it.
func (a *Adoption) mend(ctx context.Context, found []suspect) error {
	if len(found) == 0 {
		return nil
	}
	return a.patiently(ctx, func() error {
		m, err := a.o.Bucket.Mark(ctx)
		if err != nil {
			return err
		}
		both, err := a.readBoth(ctx, found, hereFirst)
		if err != nil {
			return err
		}
		var rows []store.Row
		var put, deleted int64
		for i, b := range both {
			switch a.difference(&b) {
			case Missing, Differing:
				rows = append(rows, entry(found[i].key, b.there.Value, 0))
				put++
			case Extra:
				rows = append(rows, store.Row{Key: found[i].key})
				deleted++
			}
		}
		if err := a.o.Bucket.Bring(ctx, m, rows); err != nil {
			return err
		}
		a.counts.Different.Add(put + deleted)
		a.counts.Put.Add(put)
		a.counts.Deleted.Add(deleted)
		return nil
	})
}

// both is a key on both sides.
type both struct {
	here, there     Row
	isHere, isThere bool
}

func (a *Adoption) difference(b *both) Difference {
	switch {
	case b.isThere && b.there.Refused != "":
	case b.isThere && !b.isHere:
		return Missing
	case !b.isThere && b.isHere:
		return Extra
	case b.isThere && !a.o.Source.Same(b.here.Value, b.there.Value):
		return Differing
	}
	return ""
}

// order is in which order both sides of a key are read.
type order bool

const (
	// hereFirst is for an application that writes to the source first: what it has put here, and not deleted, is there
	// by then.
	hereFirst order = false
	// thereFirst is for one that writes here first.
	thereFirst order = true
)

// readBoth reads keys, which ascend, on both sides.
func (a *Adoption) readBoth(ctx context.Context, found []suspect, in order) ([]both, error) {
	out := make([]both, len(found))
	here := func() error { return a.readHere(ctx, found, out) }
	there := func() error { return a.readThere(ctx, found, out) }
	if in == thereFirst {
		here, there = there, here
	}
	err := here()
	if err == nil {
		err = there()
	}
	return out, err
}

func (a *Adoption) readHere(ctx context.Context, found []suspect, out []both) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, s := range found {
		g.Go(func() error {
			e, err := a.o.Bucket.Get(ctx, s.key)
			if out[i].isHere = err == nil; err != nil && !errors.Is(err, listing.ErrNotFound) {
				return err
			}
			out[i].here.Value = e.Value
			return nil
		})
	}
	return g.Wait()
}

// readThere reads the rows of suspects from the table: from the partition that a key is known to lie in, and from all
// partitions if none is known, or if the row is not in that one any more, as the application may have moved it. It
// reads key by key, or sweeps over all rows between the first key and the last, whichever is less work.
func (a *Adoption) readThere(all context.Context, found []suspect, out []both) error {
	g, ctx := errgroup.WithContext(all)
	g.SetLimit(readers)
	var mu sync.Mutex
	merge := func(i int, row Row) {
		mu.Lock()
		defer mu.Unlock()
		if b := &out[i]; !b.isThere || store.Beats(row.Time, row.Value, b.there.Time, b.there.Value) {
			b.there, b.isThere = row, true
		}
	}
	nowhere := map[string]int{}
	var first, last *suspect
	between := int64(0)
	for i := range found {
		if s := &found[i]; s.part < 0 {
			nowhere[string(s.key)] = i
			first, last = cmp.Or(first, s), s
			between = s.rows - first.rows
		}
	}
	parts := a.o.Source.Parts()
	sweeps := between/rowsPerGet < int64(parts*len(nowhere))
	for i, s := range found {
		for part := range parts {
			if s.part >= 0 && part != s.part || s.part < 0 && sweeps {
				continue
			}
			g.Go(func() error {
				row, found, err := a.o.Source.Get(ctx, part, s.key)
				if found {
					merge(i, row)
				}
				return err
			})
		}
	}
	if sweeps && len(nowhere) > 0 {
		for part := range parts {
			limit := a.rowsIn(pageBytes, min(max(int(between)*5/4/parts, 16), pageRows))
			g.Go(func() error {
				return a.sweep(ctx, part, limit, first.before, last.key, func(row Row) {
					if i, found := nowhere[string(row.Key)]; found {
						merge(i, row)
					}
				})
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	elsewhere, ctx := errgroup.WithContext(all)
	elsewhere.SetLimit(readers)
	for i, s := range found {
		mu.Lock()
		gone := s.part >= 0 && !out[i].isThere
		mu.Unlock()
		for part := range parts {
			if !gone || part == s.part {
				continue
			}
			elsewhere.Go(func() error {
				row, found, err := a.o.Source.Get(ctx, part, s.key)
				if found {
					merge(i, row)
				}
				return err
			})
		}
	}
	return elsewhere.Wait()
}

// rowsPerGet is about how many rows a page reads in the time of a get.
const rowsPerGet = 20

// sweep reads the rows of a part from first, nil or the key of a row, to last.
func (a *Adoption) sweep(ctx context.Context, part, limit int, first, last []byte, each func(Row)) error {
	for s := (Span{From: first}); ; s.After = true {
		page, err := a.o.Source.Page(ctx, part, s, limit, true)
		if err != nil {
			return err
		}
		for i := range page {
			if bytes.Compare(page[i].Key, last) > 0 {
				return nil
			}
			each(page[i])
		}
		if len(page) < limit {
			return nil
		}
		s.From = bytes.Clone(page[len(page)-1].Key)
	}
}
