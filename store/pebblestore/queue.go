package pebblestore

import "sync"

// A queue passes items from many goroutines to one goroutine. Whenever the one goroutine is free, it gets all items
// that have been added since it last took items.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
	ended chan struct{}
}

// newQueue returns a queue and starts the goroutine that receives its items. The goroutine calls
//   - before, if it is not nil, as soon as items have been added, and then
//   - take, with all items that have been added since the last call of take, also during the call of before.
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
		q.wake <- struct{}{} // never blocks: an emptied queue gets one element
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

// stop waits until the queue's goroutine has dealt with all items, and ends the goroutine. No item may be added after
// the call of stop.
func (q *queue[T]) stop() {
	close(q.wake)
	<-q.ended
}
