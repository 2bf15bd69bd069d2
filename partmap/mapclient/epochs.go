package mapclient

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// epochs has, for each bucket, the newest root in this process and the number of leases of
// each epoch. It takes the place of map clocks in the embedded form.
//
// Acquiring and releasing a lease changes two counters and takes no lock that a writer holds
// for long. This is safe because publish stores the new epoch and then reads the count of
// the old one, while acquire raises the count and then checks that the epoch is still the
// newest. So either acquire sees the new epoch and retries, or publish, and every later wait,
// sees the count.
type epochs struct {
	buckets *lru[store.BucketID, *bucket]
}

// bucket is the state of one bucket. It is evicted only while it has no leases and no call is
// under way that could publish: otherwise a wait would miss an old lease, or a slow read
// would bring an old epoch back.
type bucket struct {
	id     store.BucketID
	newest atomic.Pointer[epoch] // nil: not read yet, or evicted
	used   atomic.Bool
	// announced is the last bump for this bucket by this process; network only.
	announced atomic.Pointer[announced]

	// Guarded by the lock of epochs.buckets.
	calls   int      // loads, swaps and waits under way
	older   []*epoch // superseded ones with leases; the release of the last one removes it
	drained chan struct{}
	bytes   int64
}

// epoch is a root with the number of its leases.
type epoch struct {
	*view
	bucket     *bucket
	refused    error // why it gives no lease; nil for an open bucket
	leases     atomic.Int64
	superseded atomic.Bool
	// proof is of the poll that last proved this epoch to be the newest; nil: none yet. Only
	// the network form has it; there leases is always zero.
	proof atomic.Pointer[proof]
}

func (b *bucket) mark() *atomic.Bool { return &b.used }
func (b *bucket) size() int64        { return b.bytes }

func (b *bucket) evict() bool {
	if b.calls > 0 || len(b.older) > 0 {
		return false
	}
	// As in publish: acquire either sees that the epoch is not the newest any more, or its
	// lease is seen here.
	e := b.newest.Swap(nil)
	if e != nil && e.leases.Load() > 0 {
		b.newest.Store(e)
		return false
	}
	return true
}

const bucketBytes = 192

// lease takes a lease on the newest epoch of a bucket; nil: it has none.
func (t *epochs) lease(b *bucket) (*epoch, error) {
	touch(&b.used)
	for {
		e := b.newest.Load()
		if e == nil {
			return nil, nil
		}
		if e.refused != nil {
			return nil, e.refused
		}
		e.leases.Add(1)
		if b.newest.Load() == e {
			return e, nil
		}
		t.release(e)
	}
}

// release releases a lease.
func (t *epochs) release(e *epoch) {
	if e.leases.Add(-1) > 0 || !e.superseded.Load() {
		return
	}
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	b := e.bucket
	b.older = slices.DeleteFunc(b.older, func(e *epoch) bool { return e.leases.Load() <= 0 })
	if b.drained != nil {
		close(b.drained)
		b.drained = nil
	}
}

// begin keeps a bucket from being evicted until end.
func (t *epochs) begin(id store.BucketID) *bucket {
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	b, ok := t.buckets.order.Peek(id)
	if !ok {
		b = &bucket{id: id, bytes: bucketBytes, calls: 1}
		t.buckets.add(id, b)
		return b
	}
	b.calls++
	return b
}

func (t *epochs) end(b *bucket) {
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	b.calls--
	if b.calls == 0 && b.newest.Load() == nil {
		t.buckets.remove(b.id) // its root could not be read: nothing to keep
	}
}

// publish makes a root the newest of its bucket, unless a newer one is known, and returns the
// newest. Every lease taken after publish is on that epoch or a later one.
func (t *epochs) publish(b *bucket, r *partmap.Root) *epoch {
	e := &epoch{view: newView(r), bucket: b, refused: refusal(r)}
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	old := b.newest.Load()
	if old != nil && old.root.Epoch >= r.Epoch {
		return old
	}
	b.newest.Store(e)
	if old != nil {
		old.superseded.Store(true)
		if old.leases.Load() > 0 {
			b.older = append(b.older, old)
		}
	}
	size := bucketBytes + proofBytes + e.size()
	t.buckets.bytes += size - b.bytes
	b.bytes = size
	t.buckets.shrink()
	return e
}

// wait returns when no epoch below e has a lease.
func (t *epochs) wait(ctx context.Context, b *bucket, e uint64) error {
	for {
		drained := t.older(b, e)
		if drained == nil {
			return nil
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// older returns a channel that is closed when leases below epoch e end; nil if there are none.
func (t *epochs) older(b *bucket, e uint64) <-chan struct{} {
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	if !slices.ContainsFunc(b.older, func(o *epoch) bool { return o.root.Epoch < e }) {
		return nil
	}
	if b.drained == nil {
		b.drained = make(chan struct{})
	}
	return b.drained
}
