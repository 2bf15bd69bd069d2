package balancer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
)

// Threads are how a balancer does several things at once: it begins nothing beside what it does, and waits for nothing,
// in another way.
type Threads interface {
	// Go calls f beside what goes on already.
	Go(f func())
	// Sleep waits for d, Wait for an element of c, which it takes. They return the cause of the end of ctx if that
	// comes first.
	Sleep(ctx context.Context, d time.Duration) error
	Wait(ctx context.Context, c <-chan struct{}) error
}

// goroutines are Threads by the clock of the machine.
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

// beside calls f for 0 to n-1 beside what goes on already. wait waits until all of them have returned.
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
			_ = b.o.Threads.Wait(context.Background(), over) // it never fails
		}
	}
}

// Coroutines are Threads in virtual time, for simulations. One runs at a time, until it sleeps or waits, and which one
// goes on follows from what they did: so the same simulation gives the same result. They are for one goroutine.
type Coroutines struct {
	now     time.Time
	all     []*coroutine // that have not ended, in the order of their beginnings
	running *coroutine
	sleeps  int
}

// coroutine is one of Coroutines. It has not begun, or sleeps, or waits for an element of on; until ctx ends.
type coroutine struct {
	resume func() (struct{}, bool)
	pause  func(struct{}) bool
	ctx    context.Context
	on     <-chan struct{} // nil: it sleeps
	until  time.Time
	order  int // among those that sleep until the same time
}

// NewCoroutines makes coroutines whose time is now.
func NewCoroutines(now time.Time) *Coroutines { return &Coroutines{now: now} }

// Now returns the time, which only Pass changes.
func (c *Coroutines) Now() time.Time { return c.now }

// Go implements Threads: f begins with the next Settle, or goes on with the present one.
func (c *Coroutines) Go(f func()) {
	x := &coroutine{}
	x.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		x.pause = yield
		f()
	})
	c.asleep(x, context.Background(), 0)
	c.all = append(c.all, x)
}

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

// Pass sets the time.
func (c *Coroutines) Pass(now time.Time) { c.now = now }

// Settle runs all coroutines that can go on now, until none can. It returns when the first one goes on by itself; the
// zero time: none does.
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

// next is the coroutine that goes on next: the first one for which there is an element or whose context has ended, else
// the one that has slept enough first. nil: none does.
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
