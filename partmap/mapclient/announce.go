package mapclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
	"github.com/evenkeel/evenkeel/store/wait"
)

// announced records that the swap to a version of the root was acknowledged, and after it a
// bump. Waits count from the acknowledgement of the bump.
type announced struct {
	version store.Version
	at      wait.Instant
}

// swapRoot swaps a root. If the outcome is unknown it reads the root, and retries. nil means
// that the swap was applied, Conflict that it never will be; any other error leaves the outcome
// unknown.
func (n *network) swapRoot(ctx context.Context, id store.BucketID, old store.Version, next store.Record) error {
	const tries = 4
	err := n.store.Swap(ctx, store.Roots, id[:], old, next)
	for try := 1; err != nil && try < tries; try++ {
		// A Conflict of a retry may be due to the first try.
		if !store.OutcomeUnknown(err) && try == 1 {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		now, readErr := n.store.Read(ctx, store.Roots, id[:], store.Serial)
		if readErr != nil && !errors.Is(readErr, store.NotFound) {
			_ = n.pauses.Sleep(ctx, try)
			continue
		}
		switch {
		case now.Version == next.Version:
			return nil
		case now.Epoch == next.Epoch:
			return store.Errorf(store.Conflict, "somebody else swapped it to epoch %d", now.Epoch)
		case now.Epoch > next.Epoch:
			return store.Errorf(store.Timeout, "outcome unknown: the root is at epoch %d already", now.Epoch)
		}
		// Not applied, or not yet. Of equal swaps at most one is applied.
		err = n.store.Swap(ctx, store.Roots, id[:], old, next)
	}
	return unknownOutcome(err)
}

// unknownOutcome returns the error of retries. A Conflict does not mean there that the swap was
// not applied: so it becomes a Timeout.
func unknownOutcome(err error) error {
	if err == nil || store.OutcomeUnknown(err) {
		return err
	}
	return store.Errorf(store.Timeout, "outcome unknown: %v", err)
}

// announce makes clients reread a bucket's root: it acknowledges the newest root, bumps the
// clock, and acknowledges the bump, in this order. It returns the root and the instant from
// which a wait for older leases counts. The bump must follow the acknowledgement of the root:
// a client that sees an earlier bump may still read the root before.
func (n *network) announce(ctx context.Context, id store.BucketID) (*partmap.Root, wait.Instant, error) {
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	known := b.newest.Load() // before the read: a concurrent call may publish a newer one
	rec, err := store.Acknowledge(ctx, n.store, store.Roots, id[:])
	if err != nil {
		return nil, wait.Instant{}, store.Wrap(fmt.Sprintf("acknowledge the root of bucket %s", id), err)
	}
	root, err := partmap.DecodeRoot(id, rec)
	if err != nil {
		return nil, wait.Instant{}, err
	}
	if known != nil && known.root.Epoch > root.Epoch {
		return nil, wait.Instant{}, store.Errorf(
			store.Corrupt, "the root of bucket %s went back from epoch %d to %d", id, known.root.Epoch, root.Epoch,
		)
	}
	n.client.epochs.publish(b, root)
	if a := b.announced.Load(); a != nil && a.version == root.Version() {
		return root, a.at, nil
	}
	at, err := n.clock(root.Clock).bump(ctx, id)
	if err != nil {
		n.counts.add(&n.counts.BumpFailures)
		return nil, wait.Instant{}, err
	}
	b.announced.Store(&announced{version: root.Version(), at: at})
	return root, at, nil
}

// wait returns when no process has a valid lease below the bucket's present epoch. Unless this
// process knows of an acknowledged bump for that epoch, it makes one, and waits the full time.
func (n *network) wait(ctx context.Context, id store.BucketID) error {
	_, since, err := n.announce(ctx, id)
	if err != nil {
		return err
	}
	full := WaitFor(n.lease)
	for {
		now := n.now()
		left := waitLeft(since, now, full)
		if left <= 0 {
			return nil
		}
		if left > full {
			// A clock was set back to before since. Waiting from now on is as safe, and shorter
			// than waiting until the clock is back.
			since, left = now, full
		}
		if err := wait.Sleep(ctx, left); err != nil {
			return err
		}
	}
}

// bumpGroup is concurrent bumps of a clock by this process.
type bumpGroup struct {
	ids []store.BucketID
	at  wait.Instant // of the acknowledgement
}

// bump increments the clock for a bucket, in a group that starts after the call, and returns the
// instant of the acknowledgement.
func (k *clock) bump(ctx context.Context, id store.BucketID) (wait.Instant, error) {
	g := k.bumps.Join(func(g *bumpGroup) { g.ids = append(g.ids, id) }, k.n.start, func(g *bumpGroup) (err error) {
		g.at, err = k.n.raise(k.n.ctx, k.number, g.ids)
		return err
	})
	if g == nil {
		return wait.Instant{}, errClosed
	}
	select {
	case <-g.Done:
		return g.Of.at, g.Err
	case <-ctx.Done():
		return wait.Instant{}, store.Wrap("bump "+clockName(k.number), context.Cause(ctx))
	}
}

// raise bumps a clock for some buckets and returns the instant of the acknowledgement. Every
// error of a swap leaves its outcome unknown. So a bump counts as made once the clock names the
// buckets above the value that was read at Serial when the call began.
func (n *network) raise(ctx context.Context, number uint32, ids []store.BucketID) (wait.Instant, error) {
	const tries, patience = 20, 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var r raising
	err := r.once(ctx, n, number, ids)
	for try := 1; err != nil && try < tries && ctx.Err() == nil; try++ {
		if k := store.KindOf(err); k == store.Corrupt || k == store.InvalidArgument || errors.Is(err, store.NotFound) {
			break
		}
		_ = n.pauses.Sleep(ctx, try)
		err = r.once(ctx, n, number, ids)
	}
	if err != nil {
		return wait.Instant{}, store.Wrap("bump "+clockName(number), unknownOutcome(err))
	}
	return n.now(), nil
}

// raising is the progress of the bump of a clock.
type raising struct {
	began bool
	since uint64 // the value at Serial at the beginning
	until uint64 // the value to acknowledge; 0: not known
}

func (r *raising) once(ctx context.Context, n *network, number uint32, ids []store.BucketID) error {
	if r.until == 0 {
		c, v, err := readClock(ctx, n.store, number, store.Serial)
		if err != nil {
			return err
		}
		if !r.began {
			r.began, r.since = true, c.value
		}
		if slices.ContainsFunc(ids, func(id store.BucketID) bool { return !c.names(id, r.since) }) {
			c = c.bumped(ids...)
			if err := n.store.Swap(ctx, store.Clocks, clockKey(number), v, encodeClock(record.Next(v), c)); err != nil {
				return err
			}
		}
		n.counts.add(&n.counts.Bumps)
		r.until = c.value
	}
	rec, err := store.Acknowledge(ctx, n.store, store.Clocks, clockKey(number))
	if err != nil {
		return err
	}
	c, err := decodeClock(rec)
	if err == nil && c.value < r.until {
		err = store.Errorf(store.Unavailable, "it stands at %d, after %d", c.value, r.until)
	}
	return err
}
