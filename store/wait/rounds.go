package wait

import (
	"context"
	"sync"
)

// Rounds makes one call for all callers that come during the one before it, and one call at
// a time. It is safe for concurrent use; the zero value is ready.
type Rounds[T any] struct {
	mu      sync.Mutex
	next    *Round[T] // has not begun; nil: nobody waits for it
	running bool
}

// Round is one call, with what its callers have joined to it.
type Round[T any] struct {
	Of T
	// Done is closed at the end of the call, after Err is set.
	Done chan struct{}
	Err  error
}

// Join joins a caller, by add, to the round that begins next, and returns that. Unless rounds
// are being made, start is given their work for another goroutine; false: it refuses, and
// there is no round (nil).
func (r *Rounds[T]) Join(add func(*T), start func(work func()) bool, call func(*T) error) *Round[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running && !start(func() { r.run(call) }) {
		return nil
	}
	r.running = true
	if r.next == nil {
		r.next = &Round[T]{Done: make(chan struct{})}
	}
	add(&r.next.Of)
	return r.next
}

// run makes rounds until nobody waits for one.
func (r *Rounds[T]) run(call func(*T) error) {
	for {
		r.mu.Lock()
		now := r.next
		r.next = nil
		r.running = now != nil
		r.mu.Unlock()
		if now == nil {
			return
		}
		now.Err = call(&now.Of)
		close(now.Done)
	}
}

// Together collects all items that come during one call, and makes one next call for all of them, like Rounds. The
// context of a call ends when the contexts of all its callers have ended. Together is safe for concurrent use; the zero
// value is ready.
type Together[T any] struct{ rounds Rounds[together[T]] }

type together[T any] struct {
	items []T

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
	left   int // callers whose contexts have not ended
}

// join adds a caller. Before the call begins all others may have given up: then it has a new context.
func (x *together[T]) join(ctx context.Context, item T) {
	x.items = append(x.items, item)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left++; x.left == 1 {
		x.ctx, x.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
}

func (x *together[T]) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left--; x.left == 0 {
		x.cancel()
	}
}

// begin returns the context of the call.
func (x *together[T]) begin() (context.Context, context.CancelFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ctx, x.cancel
}

// Do adds an item to the next call, and returns when that has ended, with its error.
func (t *Together[T]) Do(ctx context.Context, item T, call func(ctx context.Context, items []T) error) error {
	r := t.rounds.Join(func(x *together[T]) { x.join(ctx, item) }, func(work func()) bool {
		go work()
		return true
	}, func(x *together[T]) error {
		ctx, cancel := x.begin()
		defer cancel()
		return call(ctx, x.items)
	})
	stop := context.AfterFunc(ctx, r.Of.leave)
	defer stop()
	<-r.Done
	return r.Err
}
