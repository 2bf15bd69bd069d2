package balancer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
)

// Threads are the means by which a balancer runs concurrent work. A balancer starts threads and waits by these methods
// only. So simulations can replace goroutines and the clock.
type Threads interface {
	// Go calls f concurrently.
	Go(f func())
	// Sleep waits for d. Wait takes an element from c, and waits for one if there is none. Both return the cause of the
	// end of ctx if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	Wait(ctx context.Context, c <-chan struct{}) error
}

// goroutines implements Threads with ordinary goroutines and the machine's clock.
type goroutines struct{}

// Go implements Threads.
func (goroutines) Go(f func()) { go f() }

// Sleep implements Threads.
func (goroutines) Sleep(ctx context.Context, d time.Duration) error { return wait.Sleep(ctx, d) }

// Wait implements Threads.
func (goroutines) Wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beside calls f for 0 to n-1, each call in a thread of its own, and returns at once. The returned function wait
// returns when all calls have ended.
func (b *Balancer) beside(n int, f func(k int)) (wait func()) {
	over := make(chan struct{}, n)
	for k := range n {
		b.o.Threads.Go(func() {
			defer func() { over <- struct{}{} }()
			f(k)
		})
	}
	return func() {
		for range n {
			_ = b.o.Threads.Wait(context.Background(), over) // it never fails, since the context never ends
		}
	}
}

// Coroutines are Threads in virtual time, for simulations. One coroutine runs at a time, until it sleeps or waits.
// Which coroutine goes on next depends only on what the coroutines did before. So the same simulation always gives the
// same result. Coroutines must be used by one goroutine.
type Coroutines struct {
	now     time.Time
	all     []*coroutine // those that have not ended, in the order in which they began
	running *coroutine
	sleeps  int
}

// coroutine is a function that runs in Coroutines, one at a time. While it does not run it sleeps, or waits for an
// element of the channel on. Both end when ctx ends. A coroutine that has not begun counts as sleeping.
type coroutine struct {
	resume func() (struct{}, bool)
	pause  func(struct{}) bool
	ctx    context.Context
	on     <-chan struct{} // nil: the coroutine sleeps
	until  time.Time
	order  int // order of coroutines that sleep until the same time
}

// NewCoroutines returns Coroutines whose virtual time is now.
func NewCoroutines(now time.Time) *Coroutines { return &Coroutines{now: now} }

// Now returns the virtual time of the simulation. Only Pass changes it.
func (c *Coroutines) Now() time.Time { return c.now }

// Go implements Threads: it makes a coroutine that calls f. f begins in the present or the next call of Settle.
func (c *Coroutines) Go(f func()) {
	x := &coroutine{}
	x.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		x.pause = yield
		f()
	})
	c.asleep(x, context.Background(), 0)
	c.all = append(c.all, x)
}

// asleep makes coroutine x sleep for the time d, or until ctx ends.
func (c *Coroutines) asleep(x *coroutine, ctx context.Context, d time.Duration) {
	c.sleeps++
	x.ctx, x.on, x.until, x.order = ctx, nil, c.now.Add(d), c.sleeps
}

// Sleep implements Threads.
func (c *Coroutines) Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 && ctx.Err() == nil {
		c.asleep(c.running, ctx, d)
		c.running.pause(struct{}{})
	}
	return context.Cause(ctx)
}

// Wait implements Threads.
func (c *Coroutines) Wait(ctx context.Context, on <-chan struct{}) error {
	for {
		select {
		case <-on:
			return nil
		default:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.running.ctx, c.running.on = ctx, on
		c.running.pause(struct{}{})
	}
}

// Pass sets the virtual time.
func (c *Coroutines) Pass(now time.Time) { c.now = now }

// Settle runs the coroutines until all of them sleep or wait. next is the virtual time at which the first sleep ends;
// zero: no coroutine sleeps.
func (c *Coroutines) Settle() (next time.Time) {
	for {
		x, now := c.next()
		switch {
		case x == nil:
			return time.Time{}
		case !now:
			return x.until
		}
		c.running = x
		if _, more := x.resume(); !more {
			c.all = slices.DeleteFunc(c.all, func(y *coroutine) bool { return x == y })
		}
	}
}

// next returns the coroutine to run next. Coroutines whose channel has an element or whose context has ended come
// first, then the one whose sleep ends first. now is true if the coroutine can run at the present virtual time. nil:
// all wait for elements.
func (c *Coroutines) next() (first *coroutine, now bool) {
	for _, x := range c.all {
		switch {
		case len(x.on) > 0 || x.ctx.Err() != nil:
			return x, true
		case x.on != nil:
		case first == nil || x.until.Before(first.until) || x.until.Equal(first.until) && x.order < first.order:
			first = x
		}
	}
	return first, first != nil && !first.until.After(c.now)
}
