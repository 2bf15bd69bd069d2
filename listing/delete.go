package listing

import (
	"cmp"
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
// It may be interrupted at any step and called again, by anybody. Where ctx ends while a
// bucket of very many ranges is looked through, the bucket stays closed, and the next call
// of this Client goes on from there.
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
	var left span
	if seen, ok := c.emptied.Get(id); ok && seen.version == (store.Version{}) {
		left.lo = seen.next
	}
	for {
		page := c.load(ctx, id, &Query{KeysOnly: true}, left, 1, nil)
		switch {
		case errors.Is(page.err, ErrBucketClosing): // somebody else looks at this moment
			return true, nil
		case page.err != nil && ctx.Err() != nil && len(page.left.lo) > 0:
			c.emptied.Add(id, emptied{next: page.left.lo})
			return false, goesOn(page.err)
		case page.err != nil || len(page.items) > 0:
			c.emptied.Remove(id)
			return false, page.err
		case page.left.done:
			c.emptied.Remove(id)
			return true, nil
		}
		left = page.left
	}
}

// emptied is how far a bucket was looked through and found empty.
type emptied struct {
	// version is that of the root, closing, under which it was; while it is the present
	// one, nobody can have written. Zero: the bucket was open, so it is a guess.
	version store.Version
	next    []byte
}

const (
	// rememberedLooks is for how many buckets that is remembered.
	rememberedLooks = 1000
	// lookTime is after how long a closing bucket is written down as closing once more:
	// one that has been so for a minute counts as left behind.
	lookTime = 15 * time.Second
	// lookRanges are looked at between two notes of how far it is.
	lookRanges = 256
)

func goesOn(why error) error {
	return store.Wrap("the bucket has very many ranges; delete it again to go on where this stopped", why)
}

// closeAndDelete takes a bucket from open or closing to deleted if it has no
// entries, else back to open. Whatever happens meanwhile, each decision holds
// for the root on which it was made, or its swap fails and it is made anew.
func (c *Client) closeAndDelete(ctx context.Context, root *partmap.Root) error {
	// Each move under way may come in between once per phase.
	const decisions = 10 * casAttempts
	for left := decisions; left > 0; left-- {
		seen, goOn := c.emptied.Get(root.Bucket)
		if goOn = goOn && seen.version == root.Version(); !goOn {
			seen = emptied{}
		}
		if err := ctx.Err(); err != nil {
			if goOn {
				return goesOn(err)
			}
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
		empty := false
		if goOn {
			// From the one version right to the next: nobody was between. And there is no
			// lease left to wait for.
			var mine bool
			if root, mine, err = c.swapState(ctx, root, func() (partmap.Change, error) {
				return partmap.Again(root, c.maps.Stamp()), nil
			}); err != nil {
				return err
			}
			if !mine {
				continue
			}
			c.emptied.Add(root.Bucket, emptied{root.Version(), seen.next})
		} else {
			// Somebody else's closing may be older than the last lease: wait anew.
			err = c.maps.Wait(ctx, root.Bucket)
		}
		if err == nil {
			look, cancel := context.WithTimeout(ctx, lookTime)
			var next []byte
			empty, next, err = c.empty(look, root, seen.next)
			late := look.Err() != nil
			cancel()
			if err != nil && late && len(next) > 0 {
				c.emptied.Add(root.Bucket, emptied{root.Version(), next})
				if len(seen.next) == 0 || string(next) > string(seen.next) {
					left++
				}
				continue
			}
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
	c.emptied.Remove(root.Bucket)
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

// setState swaps the state of a bucket; see swapState.
func (c *Client) setState(ctx context.Context, root *partmap.Root, to partmap.State) (now *partmap.Root, mine bool, err error) {
	return c.swapState(ctx, root, func() (partmap.Change, error) { return partmap.WithState(root, to, c.maps.Stamp()) })
}

// swapState swaps the root of a bucket and finds out what became of it: the
// present root, and whether it is this call's. Where it fails the outcome is
// unknown.
func (c *Client) swapState(ctx context.Context, root *partmap.Root, make func() (partmap.Change, error)) (now *partmap.Root, mine bool, err error) {
	var tried []store.Version
	for range casAttempts {
		var change partmap.Change
		change, err = make()
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

// empty looks at every range of a closed bucket from a key on, wherever its phase says
// that entries may be, as widely as the store can. Nobody acts on the bucket but
// movers, and they change the root, which the swap to deleted notices. The ranges are
// read as a page reads them, both sides merged: during a move a partition may hold rows
// though the bucket lists none, in draining what was copied, in copying what a marker
// hides. With an error, all below next is empty.
func (c *Client) empty(ctx context.Context, root *partmap.Root, from []byte) (empty bool, next []byte, err error) {
	errFound := errors.New("an entry")
	rows := store.Everywhere(c.rows)
	var g *errgroup.Group
	gctx, n := ctx, 0
	next = from
	for rg, rerr := range c.maps.Ranges(ctx, root, from) {
		if rerr != nil {
			err = rerr
			break
		}
		if g == nil {
			g, gctx = errgroup.WithContext(ctx)
			g.SetLimit(c.o.MaxParallel)
		}
		g.Go(func() error {
			found, err := hasEntry(gctx, rows, root.Bucket, &rg)
			if err == nil && found {
				err = errFound
			}
			return err
		})
		if n++; n%lookRanges == 0 {
			if err = g.Wait(); err != nil {
				break
			}
			g, next = nil, rg.End
		}
	}
	if g != nil {
		err = cmp.Or(g.Wait(), err)
	}
	if errors.Is(err, errFound) {
		return false, nil, nil
	}
	return err == nil, next, err
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
