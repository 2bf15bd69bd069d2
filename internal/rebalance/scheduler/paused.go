package scheduler

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// pausesEvery is the time between two reads of the pauses of moves that operators have set. A move also reads the
// pauses when it begins, so a new pause is obeyed at once.
const pausesEvery = 2 * time.Second

// watchPauses reads the pauses that operators have set, every 2 seconds (pausesEvery), until ctx ends.
func (g *Scheduler) watchPauses(ctx context.Context) {
	for wait.Sleep(ctx, pausesEvery) == nil {
		g.LookAtPauses(ctx)
	}
}

// LookAtPauses reads the pauses of moves that operators have set, so that the scheduler knows at once that a pause has
// begun or ended. Without a call, the next read is up to 2 seconds away.
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

// hold tells the executor of bucket b, which carries out the bucket's moves, whether moves are paused. The caller holds
// Scheduler.mu.
func (g *Scheduler) hold(b *bucket) {
	p, paused := g.gate.Paused(&g.pauses, b.id)
	if !paused {
		b.parked = false
		b.x.Hold(nil)
		return
	}
	b.x.Hold(&p)
}
