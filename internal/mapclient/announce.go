package mapclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// announced records that this process has told all other processes of a new root of a bucket's map. It does so after
// the swap of the root, by a raise of the map clock, the counter that all processes poll. version is the version of the
// root. `at` is the instant at which the raise was acknowledged; waits for older leases begin there.
type announced struct {
	version store.Version
	at      wait.Instant
}

// swapRoot swaps the stored root of a bucket's map from version old to the record next. If the outcome of a swap is
// unknown, it reads the root and retries. The error says what came of it:
//   - nil: the swap was applied.
//   - Conflict: the swap will never be applied.
//   - any other error: the outcome is unknown.
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
		// The swap was not applied, or not yet. Of two equal swaps at most one is applied.
		err = n.store.Swap(ctx, store.Roots, id[:], old, next)
	}
	return unknownOutcome(err)
}

// unknownOutcome turns err, the error of the last of several tries of a swap, into the error to return. The result
// means that the outcome is unknown: it is err itself if err means so, else a Timeout.
func unknownOutcome(err error) error {
	// An earlier try may have succeeded, and so caused a Conflict in the last one.
	if err == nil || store.OutcomeUnknown(err) {
		return err
	}
	return store.Errorf(store.Timeout, "outcome unknown: %v", err)
}

// announce makes all processes reread the root of a bucket's map after a change of the map. It makes the newest root
// known in every data centre, and then raises the map clock, a counter that all processes poll. It returns that root,
// and the instant at which the raise was complete. A caller that waits for the end of older leases counts from this
// instant.
func (n *network) announce(ctx context.Context, id store.BucketID) (*partmap.Root, wait.Instant, error) {
	// The clock must be raised after the root is acknowledged: a process that sees a clock raised earlier may still
	// read the old root.
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	known := b.newest.Load() // before the read: a concurrent call may publish a newer one
	rec, err := record.Acknowledge(ctx, n.store, store.Roots, id[:])
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

// wait returns once no process has a valid lease on an older map of the bucket than the present one. It takes a little
// longer than a lease. The time counts from the last raise of the map clock, the counter that processes poll, for the
// present map. If this process has not raised the clock for that map yet, wait does so first.
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

// bumpGroup collects the buckets for which calls of this process raise the same map clock, a counter in the store, at
// about the same time. A single swap then raises the clock for all of them.
type bumpGroup struct {
	ids []store.BucketID
	at  wait.Instant // when the bump was acknowledged
}

// bump increments the map clock, a counter that all processes poll, after the map of the bucket id has changed. It
// returns the instant at which the new value was acknowledged. While a swap of the clock is under way, further calls
// wait, and share the next swap.
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

// raise increments a map clock, a counter that all processes poll, for the buckets ids, whose maps have changed. It
// returns the instant at which the new value was acknowledged.
func (n *network) raise(ctx context.Context, number uint32, ids []store.BucketID) (wait.Instant, error) {
	// Any error of a swap leaves open whether the swap was applied. So raise reads the clock again, and succeeds once
	// the clock names all the buckets above the value that was read when the call began.
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

// raising is the progress of a call of network.raise, which raises a map clock (a counter in the store) and may need
// several tries.
type raising struct {
	began bool
	since uint64 // value of the clock at Serial when the call began
	until uint64 // value to acknowledge; 0: not known yet
}

// once makes a single try to raise a map clock for the buckets ids. A map clock is a counter that all processes poll. A
// try has three steps:
//   - It reads the newest value of the clock.
//   - It swaps the value, if the clock does not name the buckets yet.
//   - It acknowledges the value, which makes it known in every data centre.
//
// After the first two steps have succeeded, later tries only acknowledge.
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
	rec, err := record.Acknowledge(ctx, n.store, store.Clocks, clockKey(number))
	if err != nil {
		return err
	}
	c, err := decodeClock(rec)
	if err == nil && c.value < r.until {
		err = store.Errorf(store.Unavailable, "it stands at %d, after %d", c.value, r.until)
	}
	return err
}
