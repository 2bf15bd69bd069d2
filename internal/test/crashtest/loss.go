package crashtest

import (
	"context"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// Loss loses what becomes of a bucket's swaps, between Begin and End. A store has it
// by embedding, with methods Swap and Read that call it. The zero Loss loses nothing.
type Loss struct {
	mu      sync.Mutex
	on      bool
	applied bool
	swapped bool
	bucket  store.BucketID
}

// Begin: from the next swap of the bucket's root on no answer comes. applied: the
// swap itself comes through, else it never does.
func (l *Loss) Begin(id store.BucketID, applied bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.applied, l.swapped, l.bucket = true, applied, false, id
}

// End ends it.
func (l *Loss) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
}

// Swap is s.Swap while nothing is lost.
func (l *Loss) Swap(
	ctx context.Context, s store.Registers, t store.Table, key []byte, old store.Version, next store.Record,
) error {
	l.mu.Lock()
	lost := l.on && t == store.Roots && store.BucketID(key) == l.bucket
	through := !lost || l.applied && !l.swapped
	l.swapped = l.swapped || lost
	l.mu.Unlock()
	if through {
		if err := s.Swap(ctx, t, key, old, next); err != nil || !lost {
			return err
		}
	}
	return store.Errorf(store.Timeout, "the answer to a swap was lost")
}

// Read is s.Read while nothing is lost. The answers that would tell are lost too.
func (l *Loss) Read(
	ctx context.Context, s store.Registers, t store.Table, key []byte, level store.Level,
) (store.Record, error) {
	l.mu.Lock()
	lost := l.on && l.swapped && level == store.Serial && t == store.Roots && store.BucketID(key) == l.bucket
	l.mu.Unlock()
	if lost {
		return store.Record{}, store.Errorf(store.Timeout, "the answer to a read was lost")
	}
	return s.Read(ctx, t, key, level)
}
