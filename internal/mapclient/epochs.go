package mapclient

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// epochs has, for each bucket, the newest root that this process knows, and the number of leases on each root. In the
// embedded form, in which a single process has the store to itself, it alone tells when old leases have ended.
//
// Taking and returning a lease changes two counters, and takes no lock that a writer holds for long. Safety depends on
// the order of two steps on either side:
//
//	publish    stores the new epoch,       then reads the count of the old one
//	lease      raises an epoch's count,    then checks that the epoch is still the newest
//
// So either lease sees the new epoch and retries, or publish and every later wait see the count.
type epochs struct {
	buckets *lru[store.BucketID, *bucket]
}

// bucket is what a client knows of one bucket: its newest root, and the older roots that still have leases. It stays in
// the cache
//   - while it has leases, as waits for their end count them, and
//   - while a call is under way that could publish a root, as a slow read could otherwise bring an old root back.
type bucket struct {
	id     store.BucketID
	newest atomic.Pointer[epoch] // nil: not read yet, or evicted
	used   atomic.Bool
	// announced is the last version of this bucket's root of which this process has told all other processes. It is nil
	// if no process shares the store (the embedded form).
	announced atomic.Pointer[announced]

	// The fields from here on are guarded by the lock of epochs.buckets.
	calls int      // loads, swaps and waits under way; above 0 the bucket is not evicted
	older []*epoch // superseded epochs with leases; the release of an epoch's last lease removes it
	// drained is closed when the last lease on one of the old roots in older has ended. It is nil if no call waits for
	// old leases.
	drained chan struct{}
	// bytes is an estimate of the memory that the cached state of the bucket takes.
	bytes int64
}

// epoch is one version of the root of a bucket's map, with the number of leases on this version. The cache of roots
// holds epochs.
type epoch struct {
	*view
	bucket     *bucket
	refused    error // why the root gives no lease; nil for an open bucket
	leases     atomic.Int64
	superseded atomic.Bool
	// proof is the latest read of the map clock that has shown this epoch to be the newest, or nil. Only the network
	// form, in which several processes share the store, has proofs. In that form leases is always zero.
	proof atomic.Pointer[proof]
}

func (b *bucket) mark() *atomic.Bool { return &b.used }
func (b *bucket) size() int64        { return b.bytes }

func (b *bucket) evict() bool {
	if b.calls > 0 || len(b.older) > 0 {
		return false
	}
	// As in publish: either lease sees that the epoch is not the newest any more, or its count is seen here.
	e := b.newest.Swap(nil)
	if e != nil && e.leases.Load() > 0 {
		b.newest.Store(e)
		return false
	}
	return true
}

// bucketBytes is the memory, in bytes, that the cached state of a bucket takes without its root.
const bucketBytes = 192

// lease takes a lease on the newest known root of the bucket b: the right to use this root for a while. The result is
// the root, as an epoch, or nil if no root of the bucket is known. It fails with ErrClosing or ErrDeleted if the bucket
// is closing or deleted.
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

// release ends a lease on the epoch e, a version of a bucket's root. If e is no longer the newest version and has no
// other lease, release wakes the calls that wait for old leases to end.
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

// begin returns the cached state of the bucket id, which is new and empty if the cache had none. The state is not
// evicted until the caller calls end.
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

// end ends the use of the bucket b that begin has begun, so that b may be evicted again. If no other use is left and no
// root of the bucket is known, end drops the bucket from the cache.
func (t *epochs) end(b *bucket) {
	t.buckets.mu.Lock()
	defer t.buckets.mu.Unlock()
	b.calls--
	if b.calls == 0 && b.newest.Load() == nil {
		t.buckets.remove(b.id) // its root could not be read: nothing to keep
	}
}

// publish makes r the root that later users of the bucket b get, if no newer root is known. Every lease that is taken
// after publish has returned is on r or on a newer root. The result is the newest known root, as an epoch.
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

// wait returns once no root of the bucket b with an epoch (version) below e is in use, i.e. has a lease. It fails if
// ctx ends.
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

// older returns nil if no root of the bucket b with an epoch (version) below e has a lease. Otherwise it returns a
// channel that is closed when the last lease on one of the old roots has ended. The caller then calls older again,
// since other old roots may still have leases.
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
