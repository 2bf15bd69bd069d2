package scheduler

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
)

// pausesEvery is how often a manager looks whether moves are paused. It is not what a
// pause rests on, which is the gate: a pause that is not known yet is met there.
const pausesEvery = 2 * time.Second

// watchPauses has buckets obey what the store says of pauses.
func (g *Scheduler) watchPauses(ctx context.Context) {
	for wait.Sleep(ctx, pausesEvery) == nil {
		g.LookAtPauses(ctx)
	}
}

// LookAtPauses makes a manager know of a pause, or of its end, at once. Without it that
// takes some seconds.
func (g *Scheduler) LookAtPauses(ctx context.Context) {
	s, err := g.gate.Look(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.o.Logger.Warn("whether moves are paused can't be found out; none begins until it can", "error", err)
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pauses = s
	for _, b := range g.buckets {
		g.hold(b)
	}
	g.tell()
}

// hold has a bucket obey the pauses that are known. Scheduler.mu is held.
func (g *Scheduler) hold(b *bucket) {
	p, paused := g.gate.Paused(&g.pauses, b.id)
	if !paused {
		b.parked = false
		b.x.Hold(nil)
		return
	}
	b.x.Hold(&p)
}
