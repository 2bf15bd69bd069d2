package listing

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// DeleteBucket deletes an empty bucket. It fails with ErrNoSuchBucket,
// ErrNotEmpty, InvalidArgument, Unavailable, Timeout, Corrupt, or
// ErrOutcomeUnknown; after the latter ones the bucket may be closed for a while.
// It may be interrupted at any step and called again, by anybody.
func (c *Client) DeleteBucket(ctx context.Context, name string) error {
	return wrap("delete bucket", name, c.delete(ctx, name))
}

func (c *Client) delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	if n.free() {
		return ErrNoSuchBucket
	}
	root, err := c.maps.Load(ctx, n.id)
	if err != nil {
		return err
	}
	if root.State == partmap.Deleted { // by somebody who did not come to the end
		if err := c.forget(ctx, name, n); err != nil {
			return err
		}
		return ErrNoSuchBucket
	}
	if root.State == partmap.Open {
		// A cheap look first: most buckets that are not empty show it at once,
		// and stay open.
		if empty, err := c.looksEmpty(ctx, n.id); err != nil || !empty {
			return orNotEmpty(err)
		}
	}
	if err := c.closeAndDelete(ctx, root); err != nil {
		return err
	}
	return c.forget(ctx, name, n)
}

func orNotEmpty(err error) error {
	if err == nil {
		return ErrNotEmpty
	}
	return err
}

func (c *Client) looksEmpty(ctx context.Context, id store.BucketID) (bool, error) {
	page := c.load(ctx, id, &Query{KeysOnly: true}, span{}, 1, nil)
	if errors.Is(page.err, ErrBucketClosing) { // somebody else looks at this moment
		return true, nil
	}
	return len(page.items) == 0, page.err
}

// closeAndDelete takes a bucket from open or closing to deleted if it has no
// entries, else back to open. Whatever happens meanwhile, each decision holds
// for the root on which it was made, or its swap fails and it is made anew.
func (c *Client) closeAndDelete(ctx context.Context, root *partmap.Root) error {
	// Each move under way may come in between once per phase.
	const decisions = 10 * casAttempts
	for range decisions {
		if err := ctx.Err(); err != nil {
			return c.reopen(ctx, root, store.Wrap("delete the bucket", context.Cause(ctx)))
		}
		var err error
		switch root.State {
		case partmap.Deleted:
			return ErrNoSuchBucket // somebody else was first
		case partmap.Open:
			if root, _, err = c.setState(ctx, root, partmap.Closing); err != nil {
				return err
			}
			continue
		}
		// Somebody else's closing may be older than the last lease: wait anew.
		empty := false
		if err = c.maps.Wait(ctx, root.Bucket); err == nil {
			empty, err = c.empty(ctx, root)
		}
		if err != nil || !empty {
			return c.reopen(ctx, root, orNotEmpty(err))
		}
		next, mine, err := c.setState(ctx, root, partmap.Deleted)
		if err != nil {
			return c.reopen(ctx, root, err)
		}
		if mine {
			return nil
		}
		root = next
	}
	return c.reopen(ctx, root, store.Errorf(store.Unavailable, "others change the bucket at the same time: try again"))
}

// reopen brings a closing bucket back and returns why. If it can't, the
// bucket stays closing until DeleteBucket is called again or the rebalancer
// finds it.
func (c *Client) reopen(ctx context.Context, root *partmap.Root, why error) error {
	if root.State != partmap.Closing {
		return why
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, _, err := c.setState(ctx, root, partmap.Open); err != nil {
		return errors.Join(why, store.Wrap("open the bucket again", err))
	}
	return why
}

// setState swaps the state of a bucket and finds out what became of it: the
// present root, and whether it is this call's. Where it fails the outcome is
// unknown.
func (c *Client) setState(ctx context.Context, root *partmap.Root, to partmap.State) (now *partmap.Root, mine bool, err error) {
	var tried []store.Version
	for range casAttempts {
		var change partmap.Change
		change, err = partmap.WithState(root, to, c.maps.Stamp())
		if err != nil {
			return nil, false, err
		}
		if err = c.maps.Swap(ctx, change); err == nil {
			return change.Next, true, nil
		}
		tried = append(tried, change.Next.Version())
		now, rerr := c.maps.Load(ctx, root.Bucket)
		if rerr != nil {
			err = rerr
			continue
		}
		for _, v := range tried {
			if now.Version() == v {
				return now, true, nil
			}
		}
		if now.Version() != root.Version() {
			return now, false, nil
		}
	}
	return nil, false, unknown(err)
}

// empty looks at every range of a closed bucket, wherever its phase says that
// entries may be, as widely as the store can. Nobody acts on the bucket but
// movers, and they change the root, which the swap to deleted notices. The ranges are
// read as a page reads them, both sides merged: during a move a partition may hold rows
// though the bucket lists none, in draining what was copied, in copying what a marker
// hides.
func (c *Client) empty(ctx context.Context, root *partmap.Root) (bool, error) {
	errFound := errors.New("an entry")
	rows := store.Everywhere(c.rows)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.MaxParallel)
	var broken error
	for rg, err := range c.maps.Ranges(gctx, root, nil) {
		if err != nil {
			broken = err
			break
		}
		g.Go(func() error {
			found, err := hasEntry(gctx, rows, root.Bucket, &rg)
			if err == nil && found {
				err = errFound
			}
			return err
		})
	}
	err := g.Wait() // the first failure, and the cause of those after it
	if errors.Is(err, errFound) {
		return false, nil
	}
	if err == nil {
		err = broken
	}
	return err == nil, err
}

// hasEntry looks for a live entry in a range, as its phase says.
func hasEntry(ctx context.Context, rows store.Rows, id store.BucketID, rg *partmap.Range) (bool, error) {
	rest := span{}
	rest.raise(rg.Start, false)
	if len(rg.End) > 0 {
		rest.lower(rg.End)
	}
	for limit := minSlice; ; limit = min(2*limit, store.MaxPageRows) {
		got, err := readPhase(ctx, rows, id, rg, rest.within(rg), store.SliceOptions{Limit: limit})
		if err != nil {
			return false, err
		}
		for i := range got.rows {
			if _, live, err := store.EntryValue(got.rows[i].Value); live || err != nil {
				return live, err
			}
		}
		for i := range got.orphans { // see lookAgain
			row, found, err := rows.Get(ctx, store.Partition{Bucket: id, ID: rg.Partition}, got.orphans[i].Key)
			if err != nil {
				return false, err
			}
			if !found || row.Timestamp < got.orphans[i].Timestamp {
				continue
			}
			if _, live, err := store.EntryValue(row.Value); live || err != nil {
				return live, err
			}
		}
		if !got.more {
			return false, nil
		}
		rest.passKey(got.last)
	}
}

// forget takes a deleted bucket off the list and frees its name. The name goes
// last: as long as it is there, another DeleteBucket finds what is left to do.
func (c *Client) forget(ctx context.Context, name string, n nameRecord) error {
	c.names.Remove(name)
	err := c.delist(ctx, name, n.id)
	if err == nil {
		err = c.swapName(ctx, name, n, store.BucketID{}, 0)
		if errors.Is(err, store.Conflict) { // freed, or in use again
			err = nil
		}
	}
	return store.Wrap("the bucket is deleted, but not yet off the list of buckets; delete it again", err)
}
