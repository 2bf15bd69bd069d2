package wait

import (
	"context"
	"sync"
)

// Rounds combines the calls of many goroutines into shared calls, each of which is a Round. Only one shared call runs
// at a time. All goroutines that join during a shared call take part in the next one. Rounds is safe for concurrent
// use; the zero value is ready.
type Rounds[T any] struct {
	mu      sync.Mutex
	next    *Round[T] // the round that has not begun; nil if no caller waits for one
	running bool
}

// Round is one call that several goroutines share (see Rounds). The field Of holds the data that the goroutines have
// added for the call.
type Round[T any] struct {
	Of T
	// Done is closed at the end of the shared call, after Err is set.
	Done chan struct{}
	Err  error
}

// Join adds the caller to the next shared call, and returns the call as a Round. The caller waits for Round.Done. The
// function add puts the caller's data into Round.Of, and the function call makes the shared call.
//
// If no goroutine makes shared calls at present, Join calls start, which must run work in another goroutine. start may
// return false to refuse; Join then returns nil.
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

// run makes one shared call after another, until no goroutine waits for a further call. The argument call is the
// function that makes a shared call with the data of all its callers.
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

// Together combines the calls of many goroutines that each have one item, e.g. a row to write. Only one shared call
// runs at a time. All items that arrive during a call are passed to the next call. The context of a shared call ends
// when the contexts of all its callers have ended. Together is safe for concurrent use; the zero value is ready.
type Together[T any] struct{ rounds Rounds[together[T]] }

type together[T any] struct {
	items []T

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
	left   int // callers whose contexts have not ended
}

// join adds a caller's item to a shared call that has not begun. The first caller gives the call its context. If all
// earlier callers have given up meanwhile, which has ended the context of the call, the call gets a new context.
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

// begin returns the context with which a shared call must run, and the function that cancels this context.
func (x *together[T]) begin() (context.Context, context.CancelFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ctx, x.cancel
}

// Do adds item to the next shared call, waits until the shared call has ended, and returns its error. The function call
// makes the shared call with the items of all goroutines that share it. Do does not return early if ctx ends.
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
