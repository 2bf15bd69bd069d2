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
	// Started is when it began, by the wall clock, in whole microseconds; Took is how long it took, whatever
	// was done to the clock.
	Started time.Time
	Took    time.Duration
	// Start and End are the bounds of the count (an empty End is plus infinity).
	Start, End []byte
	// Rows are live entries, Bytes those of their keys and values, Markers the
	// deletion markers among the rows.
	Rows, Bytes, Markers int64
	// Quanta are exact, with the times of their rows; each key but the first, which is empty,
	// is the shortest separator at its place, good for a cut. Places where old rows meet new
	// ones are among them.
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

const (
	// fewestQuanta is the fewest quanta that a range of many rows is divided into; it has
	// twice as many at most.
	fewestQuanta = 128
	// seams are so many places between two neighbouring rows: those where the times of writing
	// differ most. A stream ends at one.
	seams = 8
)

// Recount counts one range of a partition exactly, page by page. It is not safe for
// concurrent use. After an error Run may be called again and continues where it stopped;
// later writes below that place are not counted.
type Recount struct {
	rows      Slicer
	partition store.Partition
	rest      store.Bounds
	o         RecountOptions

	count Count
	begun time.Time // with its monotonic part
	each  int64     // rows per quantum
	last  []byte    // the last live key
	at    int64     // when it was written
	done  bool
	// apart is by how much the times differ at the start of each quantum, longest the largest
	// of these among all rows, descending.
	apart   []int64
	longest [seams]int64
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

// Run counts to the end and returns the count. It fails like the store's Slice or
// RecountOptions.Yield, and may then be called again.
func (r *Recount) Run(ctx context.Context) (*Count, error) {
	if r.count.Started.IsZero() {
		// Backends keep microseconds, and identify a count by its start.
		r.count.Started, r.begun = r.o.Now().Truncate(time.Microsecond), time.Now()
	}
	for !r.done {
		if err := r.o.Yield(ctx, r.o.PageRows); err != nil {
			return nil, store.Wrap("recount "+r.partition.String(), err)
		}
		page, err := r.rows.Slice(ctx, r.partition, r.rest, store.SliceOptions{Limit: r.o.PageRows, Timestamps: true})
		if err == nil {
			err = r.take(page)
		}
		if err != nil {
			return nil, store.Wrap("recount "+r.partition.String(), err)
		}
	}
	r.count.Took = time.Since(r.begun)
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
		written := at
		if row.Timestamp > 0 {
			written = min(at, row.Timestamp)
		}
		r.count.Sample.write(hashOf(row.Key), row.Key, written, uint32(size), present|counted)
		r.quantum(row.Key, int64(row.Timestamp))
		r.last, r.at = append(r.last[:0], row.Key...), int64(row.Timestamp)
	}
	if n := len(page.Rows); n > 0 {
		top := page.Rows[n-1].Key
		r.count.Top = bytes.Clone(top[:min(len(top), maxTop)])
		r.rest.Start, r.rest.StartExclusive = bytes.Clone(top), true
	}
	r.done = !page.More
	return nil
}

// quantum counts a row in the last quantum, or in a new one: where that is full, and at a seam.
func (r *Recount) quantum(key []byte, at int64) {
	apart := int64(0)
	if len(r.count.Quanta) > 0 {
		apart = max(at-r.at, r.at-at)
	}
	seam := apart > r.longest[seams-1]
	if seam {
		i := seams - 1
		for ; i > 0 && r.longest[i-1] < apart; i-- {
			r.longest[i] = r.longest[i-1]
		}
		r.longest[i] = apart
	}
	if n := len(r.count.Quanta); n > 0 && !seam && r.count.Quanta[n-1].Rows < r.each {
		q := &r.count.Quanta[n-1]
		q.Rows, q.Oldest, q.Newest = q.Rows+1, min(q.Oldest, at), max(q.Newest, at)
		return
	}
	for len(r.count.Quanta) >= 2*fewestQuanta-1 {
		r.join()
	}
	var cut []byte // of the first: the range's start
	if len(r.count.Quanta) > 0 {
		cut = partmap.Separator(r.last, key)
		if above := append(bytes.Clone(r.last), 0); seam && at > r.at && string(above) < string(cut) {
			// What comes next may lie lower than this row: the place right above the old ones.
			r.add(Quantum{Key: above}, apart)
		}
	}
	r.add(Quantum{Key: cut, Rows: 1, Oldest: at, Newest: at}, apart)
}

func (r *Recount) add(q Quantum, apart int64) {
	r.count.Quanta, r.apart = append(r.count.Quanta, q), append(r.apart, apart)
}

// join makes quanta twice as large, each two neighbours that are small enough being joined, but not over a seam.
func (r *Recount) join() {
	r.each *= 2
	q := r.count.Quanta
	n := 0
	for i := range q {
		seam := r.apart[i] > r.longest[seams-1]
		last := n - 1
		switch {
		case i == 0 || seam:
		case q[i].Rows == 0:
			continue
		case q[last].Rows+q[i].Rows <= r.each:
			q[last].Rows += q[i].Rows
			q[last].Oldest, q[last].Newest = min(q[last].Oldest, q[i].Oldest), max(q[last].Newest, q[i].Newest)
			continue
		}
		q[n], r.apart[n] = q[i], r.apart[i]
		n++
	}
	r.count.Quanta, r.apart = q[:n], r.apart[:n]
}
