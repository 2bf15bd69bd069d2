package listing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// casAttempts is the greatest number of attempts of a compare-and-swap of a register while its outcome is unknown.
// After each attempt the register is read, which may show the outcome.
const casAttempts = 4

// CreateBucket creates the bucket with the given name. The cuts are keys, in any order, at which the bucket is divided
// into ranges from the beginning; without cuts the bucket has one range. Of several concurrent calls for the same name,
// one succeeds. CreateBucket fails with InvalidArgument, ErrBucketExists, ErrBucketClosing, ErrTimeUnknown,
// ErrOutcomeUnknown, Unavailable, Timeout or Corrupt. If an error that is Unavailable or Timeout wraps
// store.ErrUnwritable, nothing was done.
func (c *Client) CreateBucket(ctx context.Context, name string, cuts ...[]byte) error {
	return clientDoor{c}.CreateWith(ctx, name, nil, cuts...)
}

// CreateWith creates a bucket, like CreateBucket, and gives the bucket settings: bytes of the caller, at most
// 16 KiB of them. Older versions of evenkeel, which do not know of settings, refuse to work on such a
// bucket.
func (c clientDoor) CreateWith(ctx context.Context, name string, settings []byte, cuts ...[]byte) error {
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
	// The call fails here if the time is unknown or the store can't be written, not after half of the work is done.
	if _, err := c.stamps.Next(ctx, 1); err != nil {
		return err
	}
	if w, ok := c.rows.(store.Writable); ok {
		if err := w.Writable(); err != nil {
			return err
		}
	}
	// The map is written first: a name always has a map. Until the bucket has its name, no other process knows its id.
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
		// The bucket was deleted meanwhile, perhaps before it was on the list.
		err = c.delist(ctx, name, id)
	}
	return err
}

// vacant returns nil if a bucket may be created under the given name, otherwise an error such as ErrBucketExists. n is
// the record that says which bucket has the name. The name of a deleted bucket counts as free: an interrupted
// DeleteBucket may not have freed it.
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
	// The creation of the bucket may have been interrupted before the bucket was on the list.
	if err := c.mend(ctx, name, n.id, n.created); err != nil {
		return fmt.Errorf("%w; the list of buckets may lack it: %w", ErrBucketExists, err)
	}
	return ErrBucketExists
}

// claim gives a free name to the bucket id, by a compare-and-swap of the record of the name. The parameter old is that
// record before the swap, and created is the present time in Unix microseconds. If the outcome of a swap is unknown,
// claim reads which bucket has the name, and may repeat the swap. At most one of these swaps is applied.
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

// lost returns the error of a CreateBucket that came too late: another call has meanwhile given the name to its own
// bucket. The parameter now is the new record of the name in the directory, which leads from names to buckets.
func (c *Client) lost(ctx context.Context, name string, now nameRecord) error {
	err := c.vacant(ctx, name, now)
	if err == nil {
		return store.Errorf(store.Unavailable, "somebody else created and deleted the bucket at the same time: try again")
	}
	return err
}

// discard marks a bucket as deleted after it did not get its name. root is the root of the bucket, the record with
// which its map begins. If discard fails, verification finds that root later.
func (c *Client) discard(ctx context.Context, root *partmap.Root) {
	for _, state := range []partmap.State{partmap.Closing, partmap.Deleted} {
		change, err := mapclient.WithState(root, state, c.maps.Stamp())
		if err != nil || c.maps.Swap(ctx, change) != nil {
			return
		}
		root = change.Next
	}
}
