package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A Count is what a recount found in one partition.
type Count struct {
	// Started is when it began, by the wall clock, in whole microseconds.
	Started time.Time
	// Start and End bound what was counted (an empty End is plus infinity).
	Start, End []byte
	// Rows are live entries, Bytes those of their keys and values, Markers the
	// deletion markers among the rows.
	Rows, Bytes, Markers int64
	// Quanta are where the live entries lie, exactly; each key but the first is
	// the shortest separator at its place, good for a cut. The first is empty.
	Quanta []Quantum
	// Top is the highest key seen, or its first 1,024 bytes.
	Top []byte
	// Fine says that the recount found nothing to do: so it was not worth it, and
	// the next one may wait for longer.
	Fine bool
	// Sample is of the keys seen; the zero Sample is taken for an empty one.
	Sample Sample
}

// Slicer is what a recount needs of a store.
type Slicer interface {
	Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error)
}

// RecountOptions; the zero value is good.
type RecountOptions struct {
	// PageRows is how many rows one read asks for, default 1,000.
	PageRows int
	// Yield is called before each read, with the most rows that it will read, and
	// returns when it may go on: that is where a recount is throttled. An error
	// of it ends Run.
	Yield func(ctx context.Context, rows int) error
	// Now is the wall clock, default time.Now.
	Now func() time.Time
}

// fewestQuanta is the fewest quanta that a range of many rows is divided into; it has
// twice as many at most.
const fewestQuanta = 128

// Recount counts one range of a partition exactly, page by page. It is not safe
// for concurrent use. One that was interrupted goes on where it was, in the same
// process, by calling Run again; what was written meanwhile below that place is
// not in it.
type Recount struct {
	rows      Slicer
	partition store.Partition
	rest      store.Bounds
	o         RecountOptions

	count Count
	each  int64  // rows per quantum
	last  []byte // the last live key
	done  bool
}

// NewRecount prepares a recount of what lies in p within bounds. Nothing is read
// yet.
func NewRecount(rows Slicer, p store.Partition, bounds store.Bounds, o RecountOptions) *Recount {
	if o.PageRows <= 0 {
		o.PageRows = 1000
	}
	o.PageRows = min(o.PageRows, store.MaxPageRows)
	if o.Yield == nil {
		o.Yield = func(ctx context.Context, _ int) error { return ctx.Err() }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Recount{rows: rows, partition: p, rest: bounds, o: o, each: 1, count: Count{Start: bytes.Clone(bounds.Start), End: bytes.Clone(bounds.End), Sample: newSample()}}
}

// Rows is how many live entries were counted so far.
func (r *Recount) Rows() int64 { return r.count.Rows }

// Run counts to the end and returns the count. It fails like the store's Slice
// or the options' Yield; then it can be called again, and goes on.
func (r *Recount) Run(ctx context.Context) (*Count, error) {
	if r.count.Started.IsZero() {
		// Backends keep microseconds: a count has to be known again by when it began.
		r.count.Started = r.o.Now().Truncate(time.Microsecond)
	}
	for !r.done {
		if err := r.o.Yield(ctx, r.o.PageRows); err != nil {
			return nil, store.Wrap("recount "+r.partition.String(), err)
		}
		page, err := r.rows.Slice(ctx, r.partition, r.rest, store.SliceOptions{Limit: r.o.PageRows})
		if err == nil {
			err = r.take(page)
		}
		if err != nil {
			return nil, store.Wrap("recount "+r.partition.String(), err)
		}
	}
	return &r.count, nil
}

func (r *Recount) take(page store.Page) error {
	// Anything written around the start of the recount is newer than what it saw.
	at := store.Timestamp(r.count.Started.Add(-startSlack).UnixMicro() - 1)
	for i := range page.Rows {
		row := &page.Rows[i]
		value, live, err := store.EntryValue(row.Value)
		if err != nil {
			return err
		}
		if !live {
			r.count.Markers++
			continue
		}
		size := len(row.Key) + len(value)
		r.count.Rows++
		r.count.Bytes += int64(size)
		r.count.Sample.write(hashOf(row.Key), row.Key, at, uint32(size), present|counted)
		r.quantum(row.Key)
		r.last = append(r.last[:0], row.Key...)
	}
	if n := len(page.Rows); n > 0 {
		top := page.Rows[n-1].Key
		r.count.Top = bytes.Clone(top[:min(len(top), maxTop)])
		r.rest.Start, r.rest.StartExclusive = bytes.Clone(top), true
	}
	r.done = !page.More
	return nil
}

// quantum counts a row in the last quantum, or begins one with it. When there are
// twice as many as asked for, each two become one.
func (r *Recount) quantum(key []byte) {
	q := r.count.Quanta
	if n := len(q); n > 0 && q[n-1].Rows < r.each {
		q[n-1].Rows++
		return
	}
	if len(q) == 2*fewestQuanta {
		for i := range fewestQuanta {
			q[i] = Quantum{Key: q[2*i].Key, Rows: q[2*i].Rows + q[2*i+1].Rows}
		}
		q = q[:fewestQuanta]
		r.each *= 2
	}
	var cut []byte // of the first: the range's start
	if len(q) > 0 {
		cut = partmap.Separator(r.last, key)
	}
	r.count.Quanta = append(q, Quantum{Key: cut, Rows: 1})
}
