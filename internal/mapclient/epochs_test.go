package mapclient

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// TestNoLeaseOutlivesItsWait has goroutines take and give back leases as fast as
// they can while another publishes epochs and waits: whoever holds a lease never
// sees that the wait for a later epoch is over. It is about single instructions,
// so it goes round often, and below Client, where a round costs next to nothing.
func TestNoLeaseOutlivesItsWait(t *testing.T) {
	const rounds = 20_000
	id := store.BucketID{1}
	es := epochs{buckets: newLRU[store.BucketID, *bucket](1 << 20)}
	b := es.begin(id)
	defer es.end(b)
	root := func(epoch uint64) *partmap.Root {
		return &partmap.Root{Bucket: id, Epoch: epoch, State: partmap.Open, Entries: []partmap.Entry{{}}, Ranges: 1}
	}
	es.publish(b, root(1))
	var waited, bad atomic.Uint64
	var stop atomic.Bool
	var lessees sync.WaitGroup
	for range 4 {
		lessees.Go(func() {
			for !stop.Load() {
				e, err := es.lease(b)
				if e == nil || err != nil {
					bad.Add(1)
					return
				}
				runtime.Gosched()
				if waited.Load() > e.root.Epoch {
					bad.Add(1)
				}
				es.release(e)
			}
		})
	}
	for epoch := uint64(2); epoch < rounds && bad.Load() == 0; epoch++ {
		es.publish(b, root(epoch))
		if err := es.wait(context.Background(), b, epoch); err != nil {
			t.Error(err)
			break
		}
		waited.Store(epoch)
	}
	stop.Store(true)
	lessees.Wait()
	if bad.Load() > 0 {
		t.Errorf("%d leases outlived the wait for a later epoch", bad.Load())
	}
}
