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

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Compare finds the keys in which the source and the bucket differ. It reads both in the order of keys. If mend is
// true, it makes the bucket's entries like the source's rows. If mend is false, it reports the differences. A key that
// seems to differ is read several times first, since an application may have written it to only one of the two yet.
func (a *Adoption) Compare(ctx context.Context, mend bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.merges())
	for _, s := range a.o.Spans {
		g.Go(func() error { return a.compare(ctx, s, mend) })
	}
	return g.Wait()
}

// suspect is a key in which the source and the bucket seem to differ. The key is read again before the difference is
// reported, since one of the two may just have been written.
type suspect struct {
	key  []byte
	part int // the part of the source that has the key; -1: none
	// rows is the number of rows of the source that were read before this key. before is the key of the last of these
	// rows, or the start of the interval. Reads of the source begin at before, since the key itself may be one that no
	// row of the source can have.
	rows   int64
	before []byte
}

// mostSuspects is the largest number of keys with a seeming difference that are collected. At this number all of them
// are read again.
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

// paged is one entry of the bucket's listing. The field `at` is the timestamp for a row that is made from this entry
// and written back to the source. A nil Item marks the end of the listing.
type paged struct {
	*listing.Item
	at store.Timestamp
}

// items yields the entries of the bucket in the interval s of keys, in order. The last element has a nil Item and marks
// the end. If back is true, each entry gets a time at which it can be written back to the source, a little before the
// bucket is read.
func (a *Adoption) items(ctx context.Context, s Span, back bool) iter.Seq2[paged, error] {
	return func(yield func(paged, error) bool) {
		q := listing.Query{From: s.From, To: s.To, Limit: pageRows, Bytes: pageBytes}
		for {
			var page listing.Page
			var at store.Timestamp
			err := a.patiently(ctx, func() (err error) {
				if back {
					m, err := door.Bucket(a.o.Bucket).Mark(ctx)
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

// looks is the number of times that a key is read before a difference is reported. lookPause determines the pauses
// between these reads, which grow. In a pause, an application that writes to both sides can finish its second write.
const (
	looks     = 4
	lookPause = 250 * time.Millisecond
	// readers is the number of keys that are read at the same time.
	readers = 16
)

// settle reads again the keys in which the source and the bucket seemed to differ. Where the two still differ, settle
// makes the bucket like the source if mend is true, and reports the difference if mend is false. The keys must ascend.
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
		var both []both
		err := a.patiently(ctx, func() (err error) {
			both, err = a.readBoth(ctx, found, hereFirst)
			return err
		})
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

// mend makes the bucket like the source for the given keys: it writes the source's rows, and deletes what the source
// does not have. The writes get the time of a mark (a moment of the bucket) that was taken before the source was read.
// So they do not replace newer writes.
func (a *Adoption) mend(ctx context.Context, found []suspect) error {
	// The source's own write times would not do: the bucket may have an entry or a deletion with the same time or a
	// higher one, which would hide the row.
	if len(found) == 0 {
		return nil
	}
	return a.patiently(ctx, func() error {
		m, err := door.Bucket(a.o.Bucket).Mark(ctx)
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
		if err := door.Bucket(a.o.Bucket).Bring(ctx, m, rows); err != nil {
			return err
		}
		a.counts.Different.Add(put + deleted)
		a.counts.Put.Add(put)
		a.counts.Deleted.Add(deleted)
		return nil
	})
}

// both has the rows of one key in the two places that are compared: `here` in the bucket, and `there` in the source.
// isHere and isThere are true if the place has such a row.
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

// order says which place is read first when a key is compared: the bucket (here), or the source (there). The right
// order is to read first the place to which the application writes second.
type order bool

const (
	// hereFirst is the order for an application that writes to the source first and then to the bucket. An entry that
	// is read in the bucket is in the source by then, or the application has deleted it.
	hereFirst order = false
	// thereFirst is the order for an application that writes to the bucket first and then to the source. A row that is
	// read in the source is in the bucket by then, or the application has deleted it.
	thereFirst order = true
)

// readBoth reads the given keys in the bucket and in the source, in the given order of the two, and returns both rows
// of each key. The keys must ascend.
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

// readThere reads the rows of the given keys from the source, and stores them in out. A source has parts, such as
// partitions of a table. If the part of a key is known, the key is first read there. If it is not known, or does not
// have the key any more, all parts are read.
func (a *Adoption) readThere(all context.Context, found []suspect, out []both) error {
	// The application may have moved the row to another part.
	// If single reads of keys of unknown part are more work than a scan, all rows from the first to the last of these
	// keys are read instead.
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

// rowsPerGet says how much faster pages are than reads of single keys: a page of about 20 rows takes as long as one
// key.
const rowsPerGet = 20

// sweep calls the function each with the rows of one part of the source, such as a partition of a table. It covers the
// keys from first to last, both included. A nil first is the lowest key. sweep reads `limit` rows at a time.
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
