package crashtest

import (
	"context"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// Loss loses the answers to changes of a bucket's map root, or the changes themselves, between Begin and End. A store
// embeds a Loss, and has methods Swap and Read that call those of Loss. The zero Loss loses nothing.
type Loss struct {
	mu      sync.Mutex
	on      bool
	applied bool
	swapped bool
	bucket  store.BucketID
}

// Begin lets the next changes of the bucket's root get no answer, until End is called. If applied is true, the first of
// these changes is made. All others are not made.
func (l *Loss) Begin(id store.BucketID, applied bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.applied, l.swapped, l.bucket = true, applied, false, id
}

// End ends the loss of answers.
func (l *Loss) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
}

// Swap calls s.Swap, or loses the swap or its answer, as Begin says.
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

// Read calls s.Read. After a swap of unknown outcome, Read loses the answers that would tell the outcome.
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
