package adopt

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// DefaultMemory is the default of Options.Memory, which limits the memory of a comparison: 256 MiB.
const DefaultMemory = 256 << 20

// ErrMemory is the error of a comparison whose rows need more memory at the same time than Options.Memory. The user has
// to allow more memory, or to compare fewer partitions.
var ErrMemory = errors.New("too little memory")

// rowBytes and the other constants bound the memory of a merge, which reads the parts of a source as one sorted stream.
// A merge holds one page of rows of each part in memory. With many parts or large rows the pages are smaller, down to
// one row. Pages of the usual size may take half of the memory. The other half is for rows that are larger than earlier
// ones.
const (
	// rowBytes is the memory of a row besides its key and its value. partBytes is the memory of a part of the source
	// (such as a partition of a table) besides its rows.
	rowBytes, partBytes = 160, 200
	// leastPage is the number of rows of a page that is assumed when the number of merges at a time is chosen. usualRow
	// is the assumed number of bytes of a row while no row was read yet.
	leastPage, usualRow = 2, rowBytes + 100
	// partPage is the largest number of rows of a page, if the source has many parts. Larger pages save little.
	partPage = 50
)

// merging counts the memory that all merges of an Adoption take together. A merge reads the parts of the source, such
// as partitions of a table, at the same time, as one sorted stream of rows.
type merging struct {
	parts, bytes        atomic.Int64 // number of parts that have not ended, and bytes of pages and parts
	rowsRead, bytesRead atomic.Int64 // rows and bytes of all pages read
	lastRow             atomic.Int64 // mean bytes of a row of the last page
}

// merges returns the number of intervals of keys that may be compared at the same time, so that their pages of rows fit
// into memory. The result is from 1 to Options.Parallel.
func (a *Adoption) merges() int {
	one := int64(a.o.Source.Parts()) * (partBytes + leastPage*usualRow)
	return int(min(max(a.o.Memory/2/max(one, 1), 1), int64(a.o.Parallel)))
}

// pageSize returns the number of rows to request for the next page of a part of the source, such as a partition of a
// table. If the pages in memory take more than half of Options.Memory already, the result is 1.
func (a *Adoption) pageSize() int {
	m := &a.merge
	if m.bytes.Load() > a.o.Memory/2 {
		return 1
	}
	most := max(pageRows/a.o.Source.Parts(), partPage)
	return a.rowsIn(min(a.o.Memory/2/max(m.parts.Load(), 1), pageBytes), most)
}

// rowsIn returns an estimate of the number of rows that fit into the given number of bytes. The result is at least 1
// and at most `most`.
func (a *Adoption) rowsIn(bytes int64, most int) int {
	// The size of a row is taken to be the mean of all rows so far, or the mean of the last page if that is larger.
	row := int64(usualRow)
	if n := a.merge.rowsRead.Load(); n > 0 {
		row = max(a.merge.bytesRead.Load()/n, a.merge.lastRow.Load())
	}
	return int(min(max(bytes/row, 1), int64(most)))
}

// hold adds a number of bytes to the count of bytes that rows take in memory; a negative number frees memory. It
// returns ErrMemory if the count grows above Options.Memory.
func (a *Adoption) hold(bytes int64) error {
	if held := a.merge.bytes.Add(bytes); bytes > 0 && held > a.o.Memory {
		return fmt.Errorf("%w: a comparison holds rows of all partitions at once, and those of %d partitions take more than "+
			"%d MiB", ErrMemory, a.o.Source.Parts(), a.o.Memory>>20)
	}
	return nil
}

// placed is a row of the source, with the number of the part (such as a partition of a table) in which the row lies.
type placed struct {
	Row
	part int
}

// head is the place at which a merge reads one part of the source, such as a partition of a table. It has the rows of
// the present page that are not used yet, and the interval of keys behind the page.
type head struct {
	part  int
	rows  []Row
	bytes int64
	left  Span
	ended bool // there is no further page
}

// turn reads the next page of a part of the source, if all rows of the present page are used up. If h.rows is empty
// afterwards, the part has no more rows.
func (h *head) turn(ctx context.Context, a *Adoption) error {
	if len(h.rows) > 0 || h.ended {
		return nil
	}
	limit := a.pageSize()
	if err := a.o.Pace.Take(ctx, limit); err != nil {
		return err
	}
	if err := a.patiently(ctx, func() (err error) {
		h.rows, err = a.o.Source.Page(ctx, h.part, h.left, limit, true)
		return err
	}); err != nil {
		return err
	}
	a.o.Pace.Return(limit - len(h.rows))
	a.counts.Read.Add(int64(len(h.rows)))
	size := int64(0)
	for i := range h.rows {
		size += int64(len(h.rows[i].Key)+len(h.rows[i].Value)) + rowBytes
	}
	if len(h.rows) > 0 {
		a.merge.rowsRead.Add(int64(len(h.rows)))
		a.merge.bytesRead.Add(size)
		a.merge.lastRow.Store(size / int64(len(h.rows)))
	}
	if h.ended = len(h.rows) < limit; !h.ended {
		h.left.From, h.left.After = h.rows[limit-1].Key, true
	}
	size, h.bytes = size-h.bytes, size
	return a.hold(size)
}

// heads is a heap (container/heap) of the sorted parts of a source, such as partitions of a table, that have rows left.
// The part with the lowest next key is first; of equal keys, the part with the lower number.
type heads []*head

func (h heads) Len() int { return len(h) }

func (h heads) Less(i, j int) bool {
	order := bytes.Compare(h[i].rows[0].Key, h[j].rows[0].Key)
	return order < 0 || order == 0 && h[i].part < h[j].part
}

func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*head)) }

func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// merged yields the rows of all parts of the source, such as partitions of a table, in the order of their keys. It
// reads only keys of the interval s. If several parts have a row with the same key, merged reports a Collision and
// yields only the newest row.
func (a *Adoption) merged(ctx context.Context, s Span) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		var all heads
		parts := a.o.Source.Parts()
		a.merge.parts.Add(int64(parts))
		end := func(h *head) {
			a.merge.parts.Add(-1)
			_ = a.hold(-h.bytes - partBytes)
		}
		begun := 0
		defer func() { // for a caller that stops early
			for _, h := range all {
				end(h)
			}
			a.merge.parts.Add(int64(begun - parts))
		}()
		for ; begun < parts; begun++ {
			h := &head{part: begun, left: s}
			err := a.hold(partBytes)
			if err == nil {
				err = h.turn(ctx, a)
			}
			if len(h.rows) > 0 {
				all = append(all, h)
			} else {
				end(h)
			}
			if err != nil {
				begun++
				yield(placed{}, err)
				return
			}
		}
		heap.Init(&all)
		// take returns the first row, and moves its part on to the next row.
		take := func() (placed, error) {
			h := all[0]
			out := placed{h.rows[0], h.part}
			h.rows = h.rows[1:]
			err := h.turn(ctx, a)
			if len(h.rows) > 0 {
				heap.Fix(&all, 0)
			} else {
				heap.Pop(&all)
				end(h)
			}
			return out, err
		}
		var last []byte
		for len(all) > 0 {
			out, err := take()
			for err == nil && len(all) > 0 && bytes.Equal(all[0].rows[0].Key, out.Key) {
				a.counts.Refused.Add(1)
				a.report(out.Key, string(Collision))
				var other placed
				other, err = take()
				if store.Beats(other.Time, other.Value, out.Time, out.Value) {
					out = other
				}
			}
			if err == nil && last != nil && bytes.Compare(last, out.Key) >= 0 {
				err = store.Errorf(store.Corrupt, "the source has %s behind %s", keytext.Key(out.Key), keytext.Key(last))
			}
			if err != nil {
				yield(placed{}, err)
				return
			}
			if last = out.Key; !yield(out, nil) {
				return
			}
		}
	}
}
