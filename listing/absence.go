package listing

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// absentFor is how long a client caches the result of a serial read (a read of the newest value) that no bucket has
	// a name.
	absentFor = time.Second
	// absenceReads bounds the number of concurrent serial reads by which a client looks up bucket names that seem to
	// have no bucket.
	absenceReads = 4
)

// absences is a cache of names that no bucket has. Any request may name a bucket that does not exist. To look up a name
// with certainty takes a serial read, which is expensive for all users of the store. So concurrent callers share the
// serial read of a name, its result is cached for absentFor, and the number of concurrent serial reads is bounded.
//
// The cache alone could hide a bucket that another process has just created. So every operation first reads the name at
// the level Local, from a quorum of the local data centre. CreateBucket returns only when all such reads find the new
// bucket (see settle).
type absences struct {
	known *lru.Cache[string, time.Time] // by name: the start of the serial read that found no bucket
	reads singleflight.Group
	slots *semaphore.Weighted
	now   func() time.Time
}

// newAbsences returns an empty cache of names that no bucket has. The function now returns the time of the wall clock,
// by which cached names expire.
func newAbsences(now func() time.Time) *absences {
	known, _ := lru.New[string, time.Time](absentNames) // fails only for a size that is not positive
	return &absences{known: known, slots: semaphore.NewWeighted(absenceReads), now: now}
}

// check returns the id of the bucket with the given name, or ErrNoSuchBucket if no bucket has the name. It looks the
// name up by calling read, which makes an expensive serial read. If a recent result is cached, or if another caller is
// reading the same name, check returns that result and does not call read.
func (a *absences) check(
	ctx context.Context, name string, read func(context.Context) (store.BucketID, error),
) (store.BucketID, error) {
	for {
		mine := false
		id, err, _ := a.reads.Do(name, func() (any, error) {
			mine = true
			// The cache is looked at here and not before: the read of another caller may have ended since.
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

// settle is the last step of CreateBucket: it waits until every client finds the new bucket by its name. The result
// gone is true if the bucket has lost the name since.
func (c *Client) settle(ctx context.Context, name string, id store.BucketID) (gone bool, err error) {
	// Usually every read at the level Local finds the name by now. If that can't be ensured, settle waits until all
	// clients have forgotten a cached "no such bucket".
	const forgotten = absentFor + absentFor/4 // clocks run at different speeds
	asking, cancel := context.WithTimeout(ctx, forgotten)
	defer cancel()
	n, err := c.readNameBy(func() (store.Record, error) {
		return record.Acknowledge(asking, c.regs, store.Directory, []byte(name))
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
