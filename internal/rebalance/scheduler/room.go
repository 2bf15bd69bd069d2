package scheduler

import (
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// RangesAtOnce is the maximum number of ranges that are copied, compared or removed at once, in all buckets together.
// It is also the maximum number of ranges whose leftover markers are deleted at once. It bounds the requests that moves
// send to the store, and the memory of pages in transit. A bucket that waits for leases does not count, so the number
// is far below that of the buckets that have moves under way.
const RangesAtOnce = 32

// line chooses the next one of several waiting buckets or ranges. Normally that is the one that has waited longest. But
// every other choice may be the bucket that needs the highest rate of moves (KeepUp). So a bucket with fast writes does
// not wait until a hundred others have had their turns. And buckets with fast writes take at most half of the turns
// from the others.
type line struct {
	ahead bool // the last choice was not the one that had waited longest
}

// next chooses one of n waiting buckets or ranges and returns its index. The index 0 is the one that has waited
// longest. need returns the rate of moves, in rows per second, that the bucket at index i needs (KeepUp).
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

// room limits the number of ranges that are worked on at the same time. It has a list of the ranges that wait.
// Scheduler.mu guards it.
type room struct {
	taken   int // ranges that are worked on
	waiting []*place
	line    line
}

// place is the entry of a range that waits until fewer ranges are worked on.
type place struct {
	of   *bucket
	free chan struct{} // closed when there is room
}

// room waits until work on one more range of bucket b may begin. sweep: the work is to delete the markers that a move
// has left. The caller must call end when the work is done.
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
	if at < 0 { // room was given just when ctx ended: give it back
		end()
	}
	return nil, store.Wrap("wait until fewer ranges move", context.Cause(ctx))
}

// admit lets waiting ranges begin while fewer than RangesAtOnce are worked on. The caller holds Scheduler.mu.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken < RangesAtOnce {
		at := r.line.next(len(r.waiting), func(i int) int { return r.waiting[i].of.need })
		close(r.waiting[at].free)
		r.waiting = slices.Delete(r.waiting, at, at+1)
		r.taken++
	}
}
