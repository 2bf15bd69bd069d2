package pebblestore

import "sync"

// A queue passes items to one goroutine, each time all that have been added since.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
	ended chan struct{}
}

// newQueue starts the goroutine, which calls take with the items. before, unless nil, is
// called first, and items added during it are among them.
func newQueue[T any](before func(), take func([]T)) *queue[T] {
	q := &queue[T]{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go q.run(before, take)
	return q
}

func (q *queue[T]) add(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	first := len(q.items) == 1
	q.mu.Unlock()
	if first {
		q.wake <- struct{}{} // never blocks: one per emptied queue
	}
}

func (q *queue[T]) run(before func(), take func([]T)) {
	defer close(q.ended)
	var spare []T
	for range q.wake {
		if before != nil {
			before()
		}
		q.mu.Lock()
		items := q.items
		q.items = spare[:0]
		q.mu.Unlock()
		take(items)
		clear(items)
		spare = items
	}
}

// stop ends the goroutine after the last item. Nothing may be added any more.
func (q *queue[T]) stop() {
	close(q.wake)
	<-q.ended
}
