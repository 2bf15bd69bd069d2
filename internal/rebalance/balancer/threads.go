package balancer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// Threads are the means to run concurrent work, to sleep and to wait on a channel. A balancer uses only Threads for
// these, so that simulations can replace goroutines and the clock.
type Threads interface {
	// Go calls f concurrently, and returns at once.
	Go(f func())
	// Sleep waits for the duration d. Wait receives an element from the channel c, and blocks until c has an element.
	// If ctx ends first, both return the cause of the end.
	Sleep(ctx context.Context, d time.Duration) error
	Wait(ctx context.Context, c <-chan struct{}) error
}

// goroutines are the Threads of the running program: ordinary goroutines and the clock of the machine.
type goroutines struct{}

// Go calls f in a new goroutine, and returns at once. Go is a method of the interface Threads.
func (goroutines) Go(f func()) { go f() }

// Sleep waits for the duration d by the machine's clock. If ctx ends first, Sleep returns the cause of the end. Sleep
// is a method of the interface Threads.
func (goroutines) Sleep(ctx context.Context, d time.Duration) error { return wait.Sleep(ctx, d) }

// Wait receives an element from the channel c, and blocks until c has an element. If ctx ends first, Wait returns the
// cause of the end. Wait is a method of the interface Threads.
func (goroutines) Wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beside calls f concurrently for each k from 0 to n-1, and returns at once. The returned function wait blocks until
// all calls have ended.
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

// Coroutines are Threads in virtual time, for simulations. One coroutine runs at a time, until it sleeps or waits on a
// channel. The order in which coroutines run depends only on what they did before, so the same simulation always gives
// the same result. Coroutines must be used by a single goroutine.
type Coroutines struct {
	now     time.Time
	all     []*coroutine // coroutines that have not ended, in the order in which they began
	running *coroutine
	sleeps  int
}

// coroutine is a function that runs in Coroutines, where one coroutine runs at a time. A coroutine that does not run
// either sleeps, or waits for an element of the channel in the field on. It goes on if its context ctx ends. A
// coroutine that has not begun counts as sleeping.
type coroutine struct {
	resume func() (struct{}, bool)
	pause  func(struct{}) bool
	ctx    context.Context
	on     <-chan struct{} // the channel to wait on, nil if the coroutine sleeps
	until  time.Time
	order  int // order of coroutines that sleep until the same time
}

// NewCoroutines returns Coroutines without any function to run. The virtual time of the simulation begins at now.
func NewCoroutines(now time.Time) *Coroutines { return &Coroutines{now: now} }

// Now returns the virtual time of the simulation, which changes only by calls of Pass.
func (c *Coroutines) Now() time.Time { return c.now }

// Go makes a coroutine that calls f. The coroutine begins in the present or the next call of Settle. Go is a method of
// the interface Threads.
func (c *Coroutines) Go(f func()) {
	x := &coroutine{}
	x.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		x.pause = yield
		f()
	})
	c.asleep(x, context.Background(), 0)
	c.all = append(c.all, x)
}

// asleep marks coroutine x as sleeping until the virtual time has advanced by d, or until ctx ends.
func (c *Coroutines) asleep(x *coroutine, ctx context.Context, d time.Duration) {
	c.sleeps++
	x.ctx, x.on, x.until, x.order = ctx, nil, c.now.Add(d), c.sleeps
}

// Sleep pauses the running coroutine until the virtual time has advanced by d. If ctx ends first, Sleep returns the
// cause of the end. Sleep is a method of the interface Threads.
func (c *Coroutines) Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 && ctx.Err() == nil {
		c.asleep(c.running, ctx, d)
		c.running.pause(struct{}{})
	}
	return context.Cause(ctx)
}

// Wait pauses the running coroutine until a channel has an element, and receives that element. The parameter `on` is
// the channel. If ctx ends first, Wait returns the cause of the end. Wait is a method of the interface Threads.
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

// Pass sets the virtual time of the simulation to now. The coroutines whose sleep has ended by then run in the next
// call of Settle.
func (c *Coroutines) Pass(now time.Time) { c.now = now }

// Settle runs the coroutines until all of them sleep or wait. The result next is the virtual time at which the first
// sleep ends, or zero if no coroutine sleeps. A simulation then calls Pass to advance the virtual time, and Settle
// again.
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

// next returns the coroutine to run next, or nil if all coroutines wait for elements of channels. The order is:
//   - first coroutines whose channel has an element, or whose context has ended,
//   - then the coroutine whose sleep ends first.
//
// The result `now` is true if the coroutine can run at the present virtual time.
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
