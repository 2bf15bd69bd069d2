package scheduler

import (
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// RangesAtOnce is the maximum number of ranges that are copied, compared or removed at the same time, in all buckets
// together. The same number of other ranges may be cleaned of deletion markers at that time. The limit bounds the
// requests to the store, and the memory for rows in transit. Buckets that wait for leases do not count.
const RangesAtOnce = 32

// line chooses the next one of several waiting buckets or ranges. Normally that is the one that has waited longest. At
// most every other choice is the bucket that needs the highest rate of moves (KeepUp). So a bucket with fast writes
// does not wait for a hundred others.
type line struct {
	ahead bool // the last choice was not the one that had waited longest
}

// next returns which of n waiting buckets or ranges comes next, as an index. Index 0 stands for the one that has waited
// longest. The function need returns the rate of moves, in rows per second, that the bucket at an index needs (KeepUp).
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

// room limits the number of ranges that are copied or cleaned at the same time, and lists the ranges that wait.
// Scheduler.mu guards it.
type room struct {
	taken   int // ranges that are worked on
	waiting []*place
	line    line
}

// place is the entry of a waiting range, whose work begins when fewer other ranges are being worked on.
type place struct {
	of   *bucket
	free chan struct{} // closed when there is room
}

// room waits until work on one more range of bucket b may begin, since only 32 ranges (RangesAtOnce) are worked on at
// the same time. sweep is true if the work is to delete the markers that a move has left. The caller must call end when
// the work has ended. The error is the cause of the end of ctx.
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

// admit lets waiting ranges begin as long as fewer than 32 ranges (RangesAtOnce) are being worked on. The caller holds
// Scheduler.mu.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken < RangesAtOnce {
		at := r.line.next(len(r.waiting), func(i int) int { return r.waiting[i].of.need })
		close(r.waiting[at].free)
		r.waiting = slices.Delete(r.waiting, at, at+1)
		r.taken++
	}
}
