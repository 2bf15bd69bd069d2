package scheduler

import (
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// RangesAtOnce is the largest number of ranges that are copied, compared or removed at once, in all buckets together.
// It is also the largest number of ranges that are swept at once. It bounds the requests that moves send to the store,
// and the memory of pages that are on their way. A bucket that waits for leases does not count, so the number is far
// below that of the buckets that have moves under way.
const RangesAtOnce = 32

// line chooses the next one of several that wait: the one that has waited longest. But one of every two choices in a
// row is the bucket with the highest KeepUp. So a bucket that is written to fast does not wait until a hundred others
// have had their turns, and such buckets take at most half of the turns from the others.
type line struct {
	ahead bool // the last one had not waited longest
}

// next returns the index of the next one of n that wait, which are in the order in which they came. need returns the
// KeepUp of the bucket at index i.
func (l *line) next(n int, need func(i int) int) (at int) {
	if !l.ahead {
		for i := range n {
			if need(i) > need(at) {
				at = i
			}
		}
	}
	l.ahead = at > 0
	return at
}

// room holds the ranges that are being worked on, and those that wait to be worked on. Scheduler.mu guards it.
type room struct {
	taken   int
	waiting []*place
	line    line
}

// place is a range that waits for room.
type place struct {
	of   *bucket
	free chan struct{} // closed when there is room
}

// room waits until a range of a bucket may be worked on.
func (g *Scheduler) room(ctx context.Context, b *bucket, sweep bool) (end func(), err error) {
	r := &g.copies
	if sweep {
		r = &g.sweeps
	}
	p := &place{of: b, free: make(chan struct{})}
	g.mu.Lock()
	r.waiting = append(r.waiting, p)
	r.admit()
	g.mu.Unlock()
	end = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		r.taken--
		r.admit()
	}
	select {
	case <-p.free:
		return end, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(r.waiting, p)
	if at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at < 0 { // there is room, too late
		end()
	}
	return nil, store.Wrap("wait until fewer ranges move", context.Cause(ctx))
}

// admit gives room to those that wait. Scheduler.mu is held.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken < RangesAtOnce {
		at := r.line.next(len(r.waiting), func(i int) int { return r.waiting[i].of.need })
		close(r.waiting[at].free)
		r.waiting = slices.Delete(r.waiting, at, at+1)
		r.taken++
	}
}
