package scheduler

// Terms.
//
// A process moves the buckets of a shard while it leads the shard: in a term, whose context ends with the lease. Terms
// begin and end at any time, each by itself, and all that a process leads share one loop, one rate and one scan of roots.
// An example: a process leads the shards 3 and 7, and loses 7. The turns of buckets of shard 7 end, what was requested
// for these buckets fails, and those of shard 3 go on.

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// term is the time in which this process moves the buckets of some shards.
type term struct {
	ctx  context.Context
	over bool // no turn begins in it any more; guarded by Scheduler.mu
	work sync.WaitGroup
}

// RunShards is Run for the buckets of some shards. Calls for other shards may run beside it: they share the number of
// buckets that move at once, the rate, and the scan of roots.
func (g *Scheduler) RunShards(ctx context.Context, of shard.Set) error {
	g.loop.During(ctx, g.begin, func() {
		t := &term{ctx: ctx}
		g.enter(of, t)
		<-ctx.Done()
		g.close(t)
		t.work.Wait()
		g.leave(of)
	})
	return store.Wrap("move the ranges of buckets", context.Cause(ctx))
}

func (g *Scheduler) enter(of shard.Set, t *term) {
	g.mu.Lock()
	for _, n := range of.List() {
		g.terms[n] = t
	}
	g.fresh |= of
	g.lost &^= of
	for id, b := range g.buckets {
		if of.Bucket(id) {
			b.listed = false // another process may have led meanwhile
		}
	}
	g.mu.Unlock()
	wait.Signal(g.news)
	g.tell()
}

// close lets no further turn begin in a term. Those that have begun are among its work.
func (g *Scheduler) close(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.over = true
}

// leave forgets the buckets of shards for which nothing was asked. Where the lease was lost, what was asked for fails:
// it would wait for as long as another process leads, and be done some day when nobody expects it.
func (g *Scheduler) leave(of shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range of.List() {
		if store.KindOf(context.Cause(g.terms[n].ctx)) == store.Conflict {
			g.lost |= shard.Only(n)
		}
		g.terms[n] = nil
	}
	g.fresh &^= of
	for id, b := range g.buckets {
		if g.lost.Bucket(id) {
			g.end(id, b.drop(), errElsewhere)
		}
		if of.Bucket(id) && b.feed() == 0 {
			delete(g.buckets, id)
		}
	}
}

var errElsewhere = store.Errorf(store.Conflict, "this process has lost the lead of the bucket's moves: another one "+
	"completes what had begun (status shows it); request the rest again")

// term returns the term in which a bucket may move; nil: there is none. Scheduler.mu is held.
func (g *Scheduler) term(id store.BucketID) *term {
	if t := g.terms[shard.Of(id)]; t != nil && !t.over && t.ctx.Err() == nil {
		return t
	}
	return nil
}

// Led returns the shards whose buckets this process moves.
func (g *Scheduler) Led() (led shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, t := range g.terms {
		if t != nil && t.ctx.Err() == nil {
			led |= shard.Only(n)
		}
	}
	return led
}

// begin prepares what all terms share.
func (g *Scheduler) begin(ctx context.Context) (work func()) {
	g.throttle.begin(ctx)
	g.LookAtPauses(ctx)
	return func() {
		var work sync.WaitGroup
		work.Go(func() { g.scanAll(ctx) })
		work.Go(func() { g.throttle.run(ctx, g.moving) })
		work.Go(func() { g.watchPauses(ctx) })
		for ctx.Err() == nil {
			next := g.start()
			timer := time.NewTimer(next)
			select {
			case <-g.events:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		work.Wait()
	}
}

// resume wants the busy buckets of shards that other processes have led.
func (g *Scheduler) resume(ctx context.Context, of shard.Set) {
	ids, _, err := g.busy.read(ctx)
	if err != nil && ctx.Err() == nil {
		g.o.Logger.Warn("the list of busy buckets can't be read: what was left unfinished is found by the scan", "error", err)
	}
	g.mu.Lock()
	for _, id := range ids {
		if of.Bucket(id) && g.term(id) != nil {
			b := g.bucket(id)
			if !b.running { // else listed belongs to its turn
				b.listed = true
			}
			b.want()
		}
	}
	g.mu.Unlock()
	g.tell()
}
