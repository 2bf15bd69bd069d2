package wait

import "sync"

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
