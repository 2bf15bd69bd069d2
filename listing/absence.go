package listing

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// absentFor is how long the result of a serial read that found no bucket is cached.
	absentFor = time.Second
	// absenceReads bounds the concurrent serial reads of a client.
	absenceReads = 4
)

// absences caches names without a bucket. Serial reads are expensive for all users of the
// store, and any request may name a bucket that does not exist. So callers share the read
// of a name, its result is cached for absentFor, and concurrent reads are bounded.
//
// The cache alone could miss a bucket that another process has just created. So every
// operation reads at Local first, and CreateBucket waits until all such reads find the
// bucket (see settle).
type absences struct {
	known *lru.Cache[string, time.Time] // when a serial read began that found none
	reads singleflight.Group
	slots *semaphore.Weighted
	now   func() time.Time
}

func newAbsences(now func() time.Time) *absences {
	known, _ := lru.New[string, time.Time](absentNames) // fails only for a size that is not positive
	return &absences{known: known, slots: semaphore.NewWeighted(absenceReads), now: now}
}

// check returns the result of read, or a cached ErrNoSuchBucket.
func (a *absences) check(
	ctx context.Context, name string, read func(context.Context) (store.BucketID, error),
) (store.BucketID, error) {
	for {
		mine := false
		id, err, _ := a.reads.Do(name, func() (any, error) {
			mine = true
			// Here and not before: the read of another caller may have ended since.
			if began, ok := a.known.Get(name); ok {
				if age := a.now().Sub(began); age >= 0 && age < absentFor {
					return store.BucketID{}, ErrNoSuchBucket
				}
			}
			if err := a.slots.Acquire(ctx, 1); err != nil {
				return store.BucketID{}, store.Wrap("wait to look up the name", context.Cause(ctx))
			}
			defer a.slots.Release(1)
			began := a.now()
			id, err := read(ctx)
			if errors.Is(err, ErrNoSuchBucket) {
				a.known.Add(name, began)
			}
			return id, err
		})
		// The shared read of another caller may have failed for reasons of its own.
		if err == nil || mine || errors.Is(err, ErrNoSuchBucket) {
			return id.(store.BucketID), err
		}
	}
}

// settle returns once every client finds the bucket that was just given a name: because
// reads at Local find it or, where that can't be ensured, because all cached absences have
// expired. It reports whether the bucket has lost the name since.
func (c *Client) settle(ctx context.Context, name string, id store.BucketID) (gone bool, err error) {
	const forgotten = absentFor + absentFor/4 // clocks run at different speeds
	asking, cancel := context.WithTimeout(ctx, forgotten)
	defer cancel()
	n, err := c.readNameBy(func() (store.Record, error) {
		return store.Acknowledge(asking, c.regs, store.Directory, []byte(name))
	})
	if err == nil {
		return n.id != id, nil
	}
	if _, replicated := c.regs.(store.Acknowledger); !replicated {
		return false, nil // Local is as good as any other level
	}
	<-asking.Done()
	return gone, store.Wrap("the bucket exists, but other servers may not find it yet", context.Cause(ctx))
}
