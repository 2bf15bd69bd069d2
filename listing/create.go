package listing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// casAttempts bounds the attempts of a swap whose outcome is unknown, each followed by a
// read.
const casAttempts = 4

// CreateBucket creates a bucket. Its first ranges begin and end at the given cuts, in any
// order; without cuts it has one range. Of several concurrent calls one succeeds. It fails
// with InvalidArgument, ErrBucketExists, ErrBucketClosing, ErrTimeUnknown,
// ErrOutcomeUnknown, Unavailable, Timeout or Corrupt. With store.ErrUnwritable in it, Unavailable or Timeout means that
// nothing was done.
func (c *Client) CreateBucket(ctx context.Context, name string, cuts ...[]byte) error {
	return c.CreateBucketWith(ctx, name, nil, cuts...)
}

// CreateBucketWith is CreateBucket of a bucket that has settings, of at most
// partmap.MaxSettingsBytes. Programs before settings refuse to work on such a bucket.
func (c *Client) CreateBucketWith(ctx context.Context, name string, settings []byte, cuts ...[]byte) error {
	return wrap("create bucket", name, c.create(ctx, name, settings, cuts))
}

func (c *Client) create(ctx context.Context, name string, settings []byte, cuts [][]byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	cuts = slices.Clone(cuts)
	slices.SortFunc(cuts, bytes.Compare)
	cuts = slices.CompactFunc(cuts, bytes.Equal)
	for _, cut := range cuts {
		if len(cut) == 0 || len(cut) > store.MaxKeyBytes {
			return invalid("a cut has 1 to %d bytes, not %d", store.MaxKeyBytes, len(cut))
		}
	}
	old, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return notBegun(err)
	}
	if err := c.vacant(ctx, name, old); err != nil {
		return err
	}
	// Fails now if the time is unknown or the store can't be written, not after half of the work is done.
	if _, err := c.stamps.Next(ctx, 1); err != nil {
		return err
	}
	if w, ok := c.rows.(store.Writable); ok {
		if err := w.Writable(); err != nil {
			return err
		}
	}
	// The map first: a name always has a map. Whether it was written or not, nobody else knows its id yet.
	id := store.BucketID(uuid.New())
	root, err := c.maps.CreateWith(ctx, id, settings, cuts)
	if err != nil {
		return notBegun(err)
	}
	created := c.o.Now().UnixMicro()
	if err := c.claim(ctx, name, old, id, created); err != nil {
		if !errors.Is(err, ErrOutcomeUnknown) {
			c.discard(ctx, root)
		}
		return err
	}
	if err := c.enlist(ctx, name, id, created); err != nil {
		return fmt.Errorf("the bucket exists, but the list of buckets may lack it; create it again to mend that: %w",
			unknown(err))
	}
	gone, err := c.settle(ctx, name, id)
	if err == nil && gone {
		// It was deleted meanwhile, perhaps before it was on the list.
		err = c.delist(ctx, name, id)
	}
	return err
}

// vacant fails unless a bucket may be created under a name. A name whose bucket is deleted
// counts as free: its deletion was interrupted.
func (c *Client) vacant(ctx context.Context, name string, n nameRecord) error {
	if n.free() {
		return nil
	}
	root, err := c.maps.Load(ctx, n.id)
	if err != nil {
		return err
	}
	switch root.State {
	case partmap.Deleted:
		return nil
	case partmap.Closing:
		return ErrBucketClosing
	}
	// Its creation may have been interrupted before the bucket was on the list.
	if err := c.mend(ctx, name, n.id, n.created); err != nil {
		return fmt.Errorf("%w; the list of buckets may lack it: %w", ErrBucketExists, err)
	}
	return ErrBucketExists
}

// claim gives a name that was free at version old to a bucket. Where the outcome is
// unknown it reads which bucket has the name; only one swap from this version can be applied.
func (c *Client) claim(ctx context.Context, name string, old nameRecord, id store.BucketID, created int64) error {
	var err error
	for range casAttempts {
		err = c.swapName(ctx, name, old, id, created)
		if err == nil || store.KindOf(err) == store.InvalidArgument {
			return err
		}
		now, rerr := c.readName(ctx, name, store.Serial)
		switch {
		case rerr != nil: // the next swap may tell
		case now.id == id:
			return nil
		case now.version != old.version:
			return c.lost(ctx, name, now)
		}
	}
	return unknown(err)
}

// lost returns the error of a call that another one has overtaken.
func (c *Client) lost(ctx context.Context, name string, now nameRecord) error {
	err := c.vacant(ctx, name, now)
	if err == nil {
		return store.Errorf(store.Unavailable, "somebody else created and deleted the bucket at the same time: try again")
	}
	return err
}

// discard marks the map of a bucket that did not get its name as deleted. If that fails,
// verification finds it.
func (c *Client) discard(ctx context.Context, root *partmap.Root) {
	for _, state := range []partmap.State{partmap.Closing, partmap.Deleted} {
		change, err := partmap.WithState(root, state, c.maps.Stamp())
		if err != nil || c.maps.Swap(ctx, change) != nil {
			return
		}
		root = change.Next
	}
}
