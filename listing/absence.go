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
	// absentFor is how long a serial read that found no bucket is remembered.
	absentFor = time.Second
	// absenceReads is how many such reads a client makes at once.
	absenceReads = 4
)

// absences remembers names without a bucket. A serial read is dear, to all who use
// the store, and anybody can ask for a bucket that is not there: so for one name it
// is made once by many and once in absentFor, and for all names so many at once.
//
// That alone could miss a bucket that was just created elsewhere. So every
// operation reads at Local first, and whoever creates a bucket waits until all such
// reads find it (see settle).
type absences struct {
	known *lru.Cache[string, time.Time] // when a serial read began that found none
	reads singleflight.Group
	slots *semaphore.Weighted
	now   func() time.Time
}

func newAbsences(now func() time.Time) *absences {
	known, _ := lru.New[string, time.Time](cachedNames) // fails only for a size that is not positive
	return &absences{known: known, slots: semaphore.NewWeighted(absenceReads), now: now}
}

// check returns what read says, or ErrNoSuchBucket if it said so a moment ago.
func (a *absences) check(
	ctx context.Context, name string, read func(context.Context) (store.BucketID, error),
) (store.BucketID, error) {
	for {
		if began, ok := a.known.Get(name); ok {
			if age := a.now().Sub(began); age >= 0 && age < absentFor {
				return store.BucketID{}, ErrNoSuchBucket
			}
		}
		mine := false
		id, err, _ := a.reads.Do(name, func() (any, error) {
			mine = true
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
		// Somebody else's read may have failed for reasons of theirs.
		if err == nil || mine || errors.Is(err, ErrNoSuchBucket) {
			return id.(store.BucketID), err
		}
		if ctx.Err() != nil {
			return store.BucketID{}, store.Wrap("look up the name", context.Cause(ctx))
		}
	}
}

// settle returns once every client finds the bucket that a name was just given to: at
// Local, or where that can't be made sure of, because nobody remembers any more that
// there was none. It says whether the name has been given away or freed since then.
func (c *Client) settle(ctx context.Context, name string, id store.BucketID) (gone bool, err error) {
	const forgotten = absentFor + absentFor/4 // by clocks that are not quite the same
	wait := time.NewTimer(forgotten)
	defer wait.Stop()
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
	select {
	case <-wait.C:
		return false, nil
	case <-ctx.Done():
		return false, store.Wrap("the bucket exists, but other servers may not find it yet", context.Cause(ctx))
	}
}
