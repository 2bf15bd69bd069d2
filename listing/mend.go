package listing

import (
	"context"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Owner returns the bucket that has the given name according to the directory, the registers that lead from names to
// buckets. If the list of buckets says something else, the directory is right. The ID of the result is zero if the name
// is free. Owner fails with Corrupt if the record of the name is damaged.
func (c clientDoor) Owner(ctx context.Context, name string) (door.Named, error) {
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil || n.free() {
		return door.Named{}, wrap("look up", name, err)
	}
	return door.Named{ID: n.id, Created: time.UnixMicro(n.created)}, nil
}

// Listed returns the bucket that has the given name according to the list of buckets. The ID of the result is zero if
// the list has no entry for the name. Listed fails with Corrupt if the list is damaged.
func (c clientDoor) Listed(ctx context.Context, name string) (door.Named, error) {
	e, err := c.list().Get(ctx, []byte(name))
	if errors.Is(err, ErrNotFound) || errors.Is(err, errNoMap) {
		return door.Named{}, nil
	}
	if err != nil {
		return door.Named{}, err
	}
	id, created, err := decodeInfo(e.Value)
	return door.Named{ID: id, Created: time.UnixMicro(created)}, wrap("look up", name, err)
}

// Vacant reports whether the given name has a bucket now, and whether it had one before:
//   - vacant is true if no bucket has the name;
//   - freed is true if the name had a bucket that was properly deleted.
//
// If a name is vacant but not freed, either it was never used, or the directory has lost its record, or the list of
// buckets still has an entry for it. The directory is the registers that lead from names to buckets. Vacant reads the
// list through a quorum of each data centre. It fails like Owner and Listed.
func (c clientDoor) Vacant(ctx context.Context, name string) (vacant, freed bool, err error) {
	if err := checkName(name); err != nil {
		return false, false, err
	}
	// Audits ask for the names of all buckets. Most of these names are taken, which a read at Local tells, at least as
	// of just now.
	if n, err := c.readName(ctx, name, store.Local); err == nil && !n.free() {
		return false, false, nil
	}
	// The list is read first: a call that creates a bucket meanwhile writes to the directory before the list.
	listed, err := clientDoor{c.Everywhere()}.Listed(ctx, name)
	if err != nil {
		return false, false, err
	}
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return false, false, wrap("look up", name, err)
	}
	unlisted := listed.ID == store.BucketID{}
	return n.free(), n.free() && unlisted && n.version != store.Version{}, nil
}

// Mend corrects the list of buckets for one name, so that the list agrees with the directory. The directory is the
// registers that lead from names to buckets. Mend also completes an interrupted DeleteBucket. It changes nothing if
// list and directory agree. Mend may be interrupted and repeated, by any process.
func (c clientDoor) Mend(ctx context.Context, name string) error {
	return wrap("mend", name, c.mendName(ctx, name))
}

func (c *Client) mendName(ctx context.Context, name string) error {
	listed, err := clientDoor{c}.Listed(ctx, name)
	if err != nil {
		return err
	}
	// The list is read before the directory. An id that has lost its name never gets the name back, so a list entry
	// that the directory does not confirm is stale for good.
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	if listed.ID != n.id && listed.ID != (store.BucketID{}) {
		if err := c.delist(ctx, name, listed.ID); err != nil {
			return err
		}
	}
	if n.free() {
		return nil
	}
	root, err := c.maps.Load(ctx, n.id)
	if err != nil {
		return err
	}
	if root.State == partmap.Deleted {
		return c.forget(ctx, name, n)
	}
	if err := c.mend(ctx, name, n.id, n.created); err != nil {
		return err
	}
	// The bucket may have been deleted meanwhile.
	if now, err := c.readName(ctx, name, store.Serial); err == nil && now.id != n.id {
		return c.delist(ctx, name, n.id)
	}
	return nil
}

// Restore gives a bucket its name back, after the directory has lost records. The directory is the registers that lead
// from names to buckets. The bucket is still on the list of buckets, but the directory lacks the name, or leads to a
// deleted bucket. Restore fails with ErrBucketExists if another bucket has the name, and with ErrNoSuchBucket if the
// name is not listed or the listed bucket is deleted.
func (c clientDoor) Restore(ctx context.Context, name string) error {
	// Restore relies on an order: a bucket is listed only after it got its name, and loses the name only when it is
	// deleted.
	return wrap("give back the name", name, c.restore(ctx, name))
}

func (c *Client) restore(ctx context.Context, name string) error {
	listed, err := clientDoor{c}.Listed(ctx, name)
	if err != nil {
		return err
	}
	old, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	switch {
	case listed.ID == store.BucketID{}:
		return ErrNoSuchBucket
	case old.id == listed.ID:
		return nil
	case !old.free(): // the name of a deleted bucket is free, too
		root, err := c.maps.Load(ctx, old.id)
		if err != nil {
			return err
		}
		if root.State != partmap.Deleted {
			return ErrBucketExists
		}
	}
	root, err := c.maps.Load(ctx, listed.ID)
	if err != nil {
		return err
	}
	if root.State == partmap.Deleted {
		return ErrNoSuchBucket
	}
	if err := c.claim(ctx, name, old, listed.ID, listed.Created.UnixMicro()); err != nil {
		return err
	}
	_, err = c.settle(ctx, name, listed.ID)
	return err
}

// Release takes a name away from a bucket whose map has lost its root, its first record. It is for a store in which the
// directory of names, or the list of buckets, was restored from a newer copy than roots and rows. The bucket must have
// no rows left: a bucket with rows needs a root instead.
//
// If the list of buckets has another bucket with this name, that bucket gets the name back, as by Restore. Otherwise
// the name is free. Release fails with ErrBucketExists if the bucket of the name has a root. It may be interrupted and
// repeated, by any process.
func (c clientDoor) Release(ctx context.Context, name string) error {
	return wrap("release the name", name, c.release(ctx, name))
}

func (c *Client) release(ctx context.Context, name string) error {
	listed, err := clientDoor{c}.Listed(ctx, name)
	if err != nil {
		return err
	}
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	if !n.free() {
		if _, err := c.maps.Load(ctx, n.id); err == nil {
			return ErrBucketExists
		} else if store.KindOf(err) != store.NotFound {
			return err
		}
		c.names.Remove(name)
		if err := c.swapName(ctx, name, n, store.BucketID{}, 0); err != nil {
			return err
		}
	}
	if listed.ID == (store.BucketID{}) {
		return nil
	}
	root, err := c.maps.Load(ctx, listed.ID)
	if err != nil && store.KindOf(err) != store.NotFound {
		return err
	}
	if err != nil || root.State == partmap.Deleted {
		return c.delist(ctx, name, listed.ID)
	}
	return c.restore(ctx, name)
}

// Discard deletes the bucket id, which has no name and no entries. A CreateBucket that is interrupted leaves such a
// bucket. Discard fails with ErrNotEmpty if the bucket has entries, and otherwise like DeleteBucket.
func (c clientDoor) Discard(ctx context.Context, id store.BucketID) error {
	root, err := c.maps.Load(ctx, id)
	if err == nil && root.State != partmap.Deleted {
		_, err = c.closeAndDelete(ctx, root, &remaining{})
	}
	return wrap("delete", id.String(), err)
}
