package countbook

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// bounds returns the hashes of the start key and of the end key of the interval that was counted.
func bounds(c *counter.Count) (from, to uint64) {
	if !c.Counted.IsZero() {
		return c.From, c.To
	}
	return keysample.Hash(c.Start), keysample.Hash(c.End)
}

// Slicer is the part of a store that a Recount needs. The method Slice reads a page of rows of the partition p within
// the interval of keys b.
type Slicer interface {
	Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error)
}

// RecountOptions are the options of a Recount, which reads all rows of a partition: the size of its reads, and how to
// throttle them. The zero value stands for the defaults.
type RecountOptions struct {
	// PageRows is the row limit of one read, 1,000 by default.
	PageRows int
	// Yield throttles the recount. If Yield is not nil, the recount calls it before each read, with the row limit of
	// the read. Yield returns when the read may start. Run returns an error of Yield.
	Yield func(ctx context.Context, rows int) error
	// Now returns the wall clock; time.Now by default.
	Now func() time.Time
}

const (
	// fewestQuanta is the smallest number of intervals (quanta) into which the keys of a partition with many rows are
	// divided. The largest number is twice as high.
	fewestQuanta = 128
	// seams is the largest number of seams that a recount keeps. A seam is a position between two neighbouring rows
	// whose times of writing differ more than those of other neighbours, e.g. where a stream of new keys ends.
	seams = 8
)

// A Recount counts the rows in an interval of keys of a partition exactly, by reading them page by page. It is not safe
// for concurrent use. If Run fails, it may be called again and continues where it stopped. Rows that are written
// meanwhile below that position are not counted.
type Recount struct {
	rows      Slicer
	partition store.Partition
	rest      store.Bounds
	o         RecountOptions

	count counter.Count
	begun time.Time // the start, with its monotonic part
	each  int64     // rows per quantum
	last  []byte    // the last live key
	at    int64     // when the last live row was written, in Unix microseconds
	done  bool
	// apart has, for each interval of keys (quantum), the difference of the times of writing between its first row and
	// the row before. longest has the largest of these differences among all rows, in descending order.
	apart   []int64
	longest [seams]int64
}

// NewRecount returns a Recount, which counts the rows of the partition p whose keys are within `bounds`. NewRecount
// reads nothing; the method Run does.
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
		count: counter.Count{
			Start: bytes.Clone(bounds.Start), End: bytes.Clone(bounds.End), Sample: sampleOf(keysample.New()),
		},
	}
}

// Run reads all rows in the interval of keys and returns the count. It returns an error if a page can't be read, or if
// the function Yield of the options fails. Then Run may be called again, and continues where it stopped.
func (r *Recount) Run(ctx context.Context) (*counter.Count, error) {
	if r.count.Started.IsZero() {
		// Backends store microseconds, and identify a count by its start.
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

// take counts the rows of one page, and moves the start of the rest of the interval behind the page.
func (r *Recount) take(page store.Page) error {
	// Writes around the start of the recount count as newer than the rows that the recount read.
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
		keys := keysample.Of(&r.count.Sample)
		keys.Write(keysample.Hash(row.Key), row.Key, written, uint32(size), keysample.Present|keysample.Counted)
		r.quantum(row.Key, int64(row.Timestamp))
		r.last, r.at = append(r.last[:0], row.Key...), int64(row.Timestamp)
	}
	if n := len(page.Rows); n > 0 {
		top := page.Rows[n-1].Key
		r.count.Top = bytes.Clone(top[:min(len(top), keysample.MaxTop)])
		r.rest.Start, r.rest.StartExclusive = bytes.Clone(top), true
	}
	r.done = !page.More
	return nil
}

// quantum adds a row to the last quantum of the count, which is an interval of neighbouring keys. The parameter key is
// the key of the row, and `at` is the time at which the row was written. A new quantum begins if the last one is full,
// or at a seam. A seam is a place where the times of writing of two neighbours differ much, e.g. where old rows are
// next to new rows.
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
	var cut []byte // empty for the first quantum, which begins at the range's start
	if len(r.count.Quanta) > 0 {
		cut = keyspread.Separator(r.last, key)
		if above := append(bytes.Clone(r.last), 0); seam && at > r.at && string(above) < string(cut) {
			// The next new rows may lie lower than this row, so a quantum without rows begins right above the old rows.
			r.add(counter.Quantum{Key: above}, apart)
		}
	}
	r.add(counter.Quantum{Key: cut, Rows: 1, Oldest: at, Newest: at}, apart)
}

// add appends a quantum, an interval of neighbouring keys, to the count. apart is the difference of the times of
// writing between its first row and the row before.
func (r *Recount) add(q counter.Quantum, apart int64) {
	r.count.Quanta, r.apart = append(r.count.Quanta, q), append(r.apart, apart)
}

// join reduces the number of quanta (intervals of neighbouring keys). It doubles the number of rows that a quantum may
// have, and joins neighbours that fit together. Neighbours stay separate at a seam, where old rows are next to new
// rows.
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

// sampleOf returns the Sample with the keys k.
func sampleOf(k keysample.Sample) (s counter.Sample) {
	*keysample.Of(&s) = k
	return s
}
