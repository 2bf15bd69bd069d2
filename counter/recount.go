package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A Count is the result of a recount of one partition.
type Count struct {
	// Started is when it began, by the wall clock, in whole microseconds.
	Started time.Time
	// Start and End are the bounds of the count (an empty End is plus infinity).
	Start, End []byte
	// Rows are live entries, Bytes those of their keys and values, Markers the
	// deletion markers among the rows.
	Rows, Bytes, Markers int64
	// Quanta are exact; each key but the first, which is empty, is the shortest separator
	// at its place, good for a cut.
	Quanta []Quantum
	// Top is the highest key seen, or its first 1,024 bytes.
	Top []byte
	// Fine means that nothing was to be done after the recount, so that the next one may
	// wait longer.
	Fine bool
	// Sample has keys that were read; the zero Sample counts as an empty one.
	Sample Sample
}

// Slicer is what a recount needs of a store.
type Slicer interface {
	Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error)
}

// RecountOptions are options of a Recount. The zero value has the defaults.
type RecountOptions struct {
	// PageRows is the row limit of one read, default 1,000.
	PageRows int
	// Yield, if not nil, is called before each read with the row limit, and returns when the
	// read may start: it throttles the recount. Run returns its error.
	Yield func(ctx context.Context, rows int) error
	// Now is the wall clock, default time.Now.
	Now func() time.Time
}

// fewestQuanta is the fewest quanta that a range of many rows is divided into; it has
// twice as many at most.
const fewestQuanta = 128

// Recount counts one range of a partition exactly, page by page. It is not safe for
// concurrent use. After an error Run may be called again and continues where it stopped;
// later writes below that place are not counted.
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

// NewRecount makes a recount of p within bounds. It does no I/O.
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
	return &Recount{
		rows: rows, partition: p, rest: bounds, o: o, each: 1,
		count: Count{Start: bytes.Clone(bounds.Start), End: bytes.Clone(bounds.End), Sample: newSample()},
	}
}

// Rows returns the number of live entries counted so far.
func (r *Recount) Rows() int64 { return r.count.Rows }

// Run counts to the end and returns the count. It fails like the store's Slice or
// RecountOptions.Yield, and may then be called again.
func (r *Recount) Run(ctx context.Context) (*Count, error) {
	if r.count.Started.IsZero() {
		// Backends keep microseconds, and identify a count by its start.
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
	// Writes around the start of the recount count as newer than what it read.
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

// quantum counts a row in the last quantum, or in a new one. When there are twice the fewest,
// each two are joined.
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
