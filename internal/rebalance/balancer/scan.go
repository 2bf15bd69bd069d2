package balancer

import (
	"context"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// scan is the state of the regular check of all ranges of all buckets, which is made about once an hour.
type scan struct {
	Began   time.Time // when the last scan began, zero if there was none
	running bool
	sizes   Sizes
	failed  bool
}

// turn finds the buckets to check now, and is called about once a second. The result scanning is true if it is time for
// a check of all buckets.
func (b *Balancer) turn(ctx context.Context) (scanning bool) {
	now := b.o.Now()
	if now.Before(b.tick) {
		b.tick = now // a clock that was set back must not stop the looks until it is there again
	}
	before := b.led
	b.led = b.o.Led()
	b.anew = b.lost.Swap(false) || b.anew
	b.anew = b.anew || b.led != before // the sizes are those of other buckets now
	if b.led&^before != 0 {
		// Other processes have looked after them. Shards come several at a time: one look is for all of them.
		b.mu.Lock()
		b.mark = 0
		b.mu.Unlock()
		if b.o.Next == nil {
			b.tick = time.Time{}
		}
		return false
	}
	if b.led == 0 { // a look at no bucket would be reported as a look at all buckets
		b.set(func(s *Status) { s.Sizes = Sizes{} })
		return false
	}
	interval := b.o.due(b.tick, now)
	if interval {
		b.tick = now
		b.mu.Lock()
		if b.round.Ended.IsZero() {
			b.publishLocked(now) // the round of the last interval goes on
		}
		b.round = Round{Began: now}
		if now.Before(b.scan.Began) {
			b.scan.Began = now
		}
		scanning = !b.scan.running && (b.anew || b.scan.Began.IsZero() || b.o.Exact || now.Sub(b.scan.Began) >= FullEvery)
		b.mu.Unlock()
	}
	b.finish()
	err := b.take(ctx)
	if !b.answered(ctx, err) {
		if interval { // else it is tried again at the next interval
			if err = errors.Join(err, b.rollTails(ctx)); err != nil {
				b.failed(err)
			}
			b.publish(now)
		}
		return false
	}
	if scanning {
		b.anew = false
		b.mu.Lock()
		// Backends keep microseconds.
		b.scan, b.round.Everything = scan{Began: now.Truncate(time.Microsecond), running: true}, true
		b.mu.Unlock()
	}
	b.agenda.turn(now, interval)
	if interval && !scanning && b.agenda.idle() {
		b.publish(now)
	}
	return scanning
}

// LookAtAll asks for a check of all ranges of all buckets at the next interval, for example after counts were lost.
// LookAtAll is safe for concurrent use.
func (b *Balancer) LookAtAll() { b.lost.Store(true) }

// finish removes the jobs (groups of moves) that have ended, and plans a check of the moved ranges about a second
// later.
func (b *Balancer) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, x := range b.jobs {
		j, known := b.mover.Job(id)
		if known && j.Ended.IsZero() {
			continue
		}
		delete(b.jobs, id)
		for i := range x.moves {
			m := &x.moves[i]
			b.agenda.changed(x.bucket, m.span)
			if !known || i >= len(j.Goals) || j.Goals[i].Stage != scheduler.Met {
				continue
			}
			b.gone = append(b.gone, m.leaving...)
			b.state.Moved[m.kind] += j.Goals[i].Copied
			for _, p := range m.leaving {
				delete(b.why, p.ID)
			}
		}
	}
}

// take asks the counters which partitions were written to, so that these partitions are checked. take also makes the
// counters forget partitions that no longer exist.
func (b *Balancer) take(ctx context.Context) error {
	b.mu.Lock()
	gone, mark := b.gone, b.mark
	b.mu.Unlock()
	written, next, err := b.counts.Written(ctx, mark)
	if err != nil {
		return store.Wrap("ask the counters what was written", err)
	}
	if len(gone) > 0 {
		if err := b.counts.Forget(ctx, gone...); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.mark, b.gone = next, b.gone[len(gone):]
	b.mu.Unlock()
	b.changed(written...)
	led := b.o.Led()
	for _, p := range written {
		if !led.Bucket(p.Bucket) {
			continue
		}
		b.agenda.look(p, time.Time{})
		// A new bucket may grow fast.
		if b.o.Next == nil && b.begins(p.Bucket) {
			b.agenda.hurry(p.Bucket)
		}
	}
	return nil
}

// changed calls the function Options.Changed, if there is one, with the partitions whose counts may have changed.
func (b *Balancer) changed(all ...store.Partition) {
	if b.o.Changed != nil && len(all) > 0 {
		b.o.Changed(all)
	}
}

// everything checks all ranges of all buckets, a few buckets at a time, and returns when the last check has ended.
func (b *Balancer) everything(ctx context.Context) {
	b.mu.Lock()
	began := b.scan.Began
	b.mu.Unlock()
	err := func() error {
		for keys, err := range record.KeyPages(ctx, b.store, store.Roots) {
			if err != nil {
				return store.Wrap("list all buckets", err)
			}
			for _, key := range keys {
				if !b.o.Led().Bucket(store.BucketID(key)) {
					continue
				}
				if s, seen := b.seen.Peek(store.BucketID(key)); seen && !s.whole.Before(began) {
					continue // the bucket was due, and looked at, anyway
				}
				b.agenda.everything(store.BucketID(key), b.o.Now())
				if err := b.scanned(ctx, 2*ScansAtOnce-1); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	if b.scanned(ctx, 0) == nil && err != nil {
		b.failed(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publishLocked(b.o.Now())
	b.scan.running = false
	if err != nil {
		b.scan.Began = time.Time{} // the scan begins anew at the next interval
		return
	}
	if !b.scan.failed {
		b.state.Sizes = b.scan.sizes
	}
	for id, r := range b.why {
		if r.noted.Before(began) {
			delete(b.why, id)
		}
	}
}

// scanned waits until the present check of all buckets is nearly complete. The parameter `most` is the number of
// buckets that may be left. The error is the cause of the end of ctx.
func (b *Balancer) scanned(ctx context.Context, most int) error {
	for b.agenda.remaining() > most {
		if err := b.o.Threads.Wait(ctx, b.agenda.room); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// visit waits for a bucket that is to be checked, and checks it. The result is false if ctx has ended. A check that
// fails is repeated at the next interval.
func (b *Balancer) visit(ctx context.Context) bool {
	v := b.agenda.take(b.o.Now)
	for ; v == nil; v = b.agenda.take(b.o.Now) {
		if b.o.Threads.Wait(ctx, b.agenda.ready) != nil {
			return false
		}
	}
	var o *outcome
	var err error
	led := b.o.Led().Bucket(v.id)
	held := led && b.mover.Held(v.id)
	if led && !held {
		o, err = b.lookAt(ctx, v)
		wait.Signal(b.queue.ready) // the most urgent of all recounts that the visit has queued is made first
	}
	if store.KindOf(err) == store.NotFound { // the bucket was deleted
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		b.failed(store.Wrap("look at bucket "+v.id.String(), err))
	}
	now := b.o.Now()
	b.mu.Lock()
	if o != nil {
		b.round.Ended = time.Time{}
		b.round.Buckets++
		b.round.Ranges += o.ranges
		if o.whole && b.scan.running && err == nil && o.before.whole.Before(b.scan.Began) {
			b.scan.sizes.sum(&o.sizes)
		}
	}
	b.scan.failed = b.scan.failed || v.scan && err != nil
	b.mu.Unlock()
	if b.agenda.done(v, o != nil && o.whole || !led, held || err != nil, now) || err != nil {
		b.publish(now)
	}
	return ctx.Err() == nil
}
