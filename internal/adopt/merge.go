package adopt

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// DefaultMemory is that of Options.
const DefaultMemory = 256 << 20

// ErrMemory means that the rows which a comparison has to hold take more than Options.Memory.
var ErrMemory = errors.New("too little memory")

// A merge holds a page of each part, so pages shrink with the number of parts and with the size of rows, down to one
// row. Half of the memory is for pages of the usual size: rows that come may be larger than those before.
const (
	// rowBytes and partBytes are what a row takes besides its key and its value, and a part of a merge besides its rows.
	rowBytes, partBytes = 160, 200
	// leastPage is the page for which the number of merges is chosen, of rows whose size is not known yet.
	leastPage, usualRow = 2, rowBytes + 100
	// A page of one of many parts has at most so many rows: larger ones save little.
	partPage = 50
)

// merging is what the merges of an Adoption hold together.
type merging struct {
	parts, bytes        atomic.Int64 // of parts that have not ended, and what pages and parts take
	rowsRead, bytesRead atomic.Int64 // of all pages
	lastRow             atomic.Int64 // mean bytes of a row of the last page
}

// merges returns how many spans are merged at a time.
func (a *Adoption) merges() int {
	one := int64(a.o.Source.Parts()) * (partBytes + leastPage*usualRow)
	return int(min(max(a.o.Memory/2/max(one, 1), 1), int64(a.o.Parallel)))
}

// pageSize returns how many rows of a part are read at a time.
func (a *Adoption) pageSize() int {
	m := &a.merge
	if m.bytes.Load() > a.o.Memory/2 {
		return 1
	}
	most := max(pageRows/a.o.Source.Parts(), partPage)
	return a.rowsIn(min(a.o.Memory/2/max(m.parts.Load(), 1), pageBytes), most)
}

// rowsIn returns how many rows there are in so many bytes, by the mean row of all pages before, or of the last one
// where that is larger: from 1 to most.
func (a *Adoption) rowsIn(bytes int64, most int) int {
	row := int64(usualRow)
	if n := a.merge.rowsRead.Load(); n > 0 {
		row = max(a.merge.bytesRead.Load()/n, a.merge.lastRow.Load())
	}
	return int(min(max(bytes/row, 1), int64(most)))
}

// hold counts the bytes of merges.
func (a *Adoption) hold(bytes int64) error {
	if held := a.merge.bytes.Add(bytes); bytes > 0 && held > a.o.Memory {
		return fmt.Errorf("%w: a comparison holds rows of all partitions at once, and those of %d partitions take more than "+
			"%d MiB", ErrMemory, a.o.Source.Parts(), a.o.Memory>>20)
	}
	return nil
}

// placed is a row with its part.
type placed struct {
	Row
	part int
}

// head is the present page of a part.
type head struct {
	part  int
	rows  []Row
	bytes int64
	left  Span
	ended bool // there is no further page
}

// turn reads the next page if that is necessary. Without rows the part has ended.
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

// heads are the parts that have rows, the one with the least key first.
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

// merged merges the parts of the source. Of several rows with one key it returns the newest, and reports it.
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
		defer func() { // where it is left early
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
		// take takes the first row, and leaves the next one of its part.
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
