package scheduler

// Terms.
//
// A process moves the buckets of a shard while it leads the shard: in a term, whose context ends with the lease. Each
// term begins and ends at any time by itself. All terms of a process share one loop, one rate and one scan of roots.
//
// An example: a process leads the shards 3 and 7, and loses 7. The turns of buckets of shard 7 end, and goals for these
// buckets fail. The turns of buckets of shard 3 go on.

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// term is a period during which this process may move the ranges of some buckets: those of the shards (groups of
// buckets) whose lease it holds. The context ctx ends with the lease.
type term struct {
	ctx  context.Context
	over bool // true if no more moves begin in this term, guarded by Scheduler.mu
	work sync.WaitGroup
}

// RunShards moves the ranges of the buckets in the given shards, which are groups of buckets, until ctx ends, and
// returns the cause of the end. Concurrent calls for other shards are allowed. All calls share the maximum number of
// buckets that move at once, the rate limit, and the scan for unfinished moves.
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

// enter begins the period t, during which this process moves the buckets of the given shards (groups of buckets).
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

// close ends the period t, during which this process moves the buckets of some shards (groups of buckets). No bucket
// begins to move any more. Buckets that have begun to move go on, and t.work waits for them.
func (g *Scheduler) close(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.over = true
}

// leave records that this process no longer moves the buckets of the given shards (groups of buckets). It forgets those
// buckets that have nothing left to do. If the lease was lost, moves that have not begun fail.
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
			// These moves would wait for as long as another process has the lease, and then be carried out when nobody
			// expects it.
			g.end(id, b.drop(), errElsewhere)
		}
		if of.Bucket(id) && b.feed() == 0 {
			delete(g.buckets, id)
		}
	}
}

// errElsewhere is the error of moves that had not begun when this process lost the lease of their bucket to another
// process.
var errElsewhere = store.Errorf(store.Conflict, "this process has lost the lead of the bucket's moves: another one "+
	"completes what had begun (status shows it); request the rest again")

// term returns the present period during which this process may move a bucket, or nil if this process may not move the
// bucket. The caller holds Scheduler.mu.
func (g *Scheduler) term(id store.BucketID) *term {
	if t := g.terms[shard.Of(id)]; t != nil && !t.over && t.ctx.Err() == nil {
		return t
	}
	return nil
}

// Led returns the set of shards (groups of buckets) whose ranges this process may move now.
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

// begin prepares the work that all calls of RunShards share, such as the rate limit. The returned function work does
// that work until ctx ends.
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

// resume queues buckets whose moves another process may have left unfinished: the buckets on the stored list of buckets
// with moves, as far as they belong to the given shards (groups of buckets).
func (g *Scheduler) resume(ctx context.Context, of shard.Set) {
	ids, err := g.busy.read(ctx)
	if err != nil && ctx.Err() == nil {
		g.o.Logger.Warn("the list of busy buckets can't be read: what was left unfinished is found by the scan", "error", err)
	}
	g.mu.Lock()
	for _, id := range ids {
		if of.Bucket(id) && g.term(id) != nil {
			b := g.bucket(id)
			if !b.running { // else the field belongs to the turn
				b.listed = true
			}
			b.want()
		}
	}
	g.mu.Unlock()
	g.tell()
}
