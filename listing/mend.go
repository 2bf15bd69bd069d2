package listing

import (
	"context"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// ListOfBuckets returns the id of the bucket that holds the list of buckets. It has no name,
// and no root before the first CreateBucket.
func ListOfBuckets() store.BucketID { return listID }

// Owner returns the bucket with a name, as the directory says, which is authoritative. The
// ID is zero if the name is free. It fails with Corrupt where the record is damaged.
func (c *Client) Owner(ctx context.Context, name string) (BucketInfo, error) {
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil || n.free() {
		return BucketInfo{Name: name}, wrap("look up", name, err)
	}
	return BucketInfo{Name: name, ID: n.id, Created: time.UnixMicro(n.created)}, nil
}

// Listed returns the entry of a name in the list of buckets. The ID is zero if there is
// none. It fails with Corrupt where the list is damaged.
func (c *Client) Listed(ctx context.Context, name string) (BucketInfo, error) {
	e, err := c.list().Get(ctx, []byte(name))
	if errors.Is(err, ErrNotFound) || errors.Is(err, errNoMap) {
		return BucketInfo{Name: name}, nil
	}
	if err != nil {
		return BucketInfo{}, err
	}
	id, created, err := decodeInfo(e.Value)
	return BucketInfo{Name: name, ID: id, Created: time.UnixMicro(created)}, wrap("look up", name, err)
}

// Mend brings the list of buckets in line with the directory for one name, and completes an
// interrupted DeleteBucket. It changes nothing where they agree. It may be interrupted and
// repeated, by any process.
func (c *Client) Mend(ctx context.Context, name string) error {
	return wrap("mend", name, c.mendName(ctx, name))
}

func (c *Client) mendName(ctx context.Context, name string) error {
	listed, err := c.Listed(ctx, name)
	if err != nil {
		return err
	}
	// The list is read before the directory: an id that has lost its name never gets it
	// back, so an entry that the directory does not confirm is stale for good.
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

// Restore gives a bucket its name back that is on the list of buckets, but not in the
// directory. It fails with ErrBucketExists where the name is taken, and with
// ErrNoSuchBucket where the name is not listed or the bucket is deleted.
//
// It is for a directory that has lost records: a bucket is listed only after it got its
// name, and loses the name only when it is deleted.
func (c *Client) Restore(ctx context.Context, name string) error {
	return wrap("give back the name", name, c.restore(ctx, name))
}

func (c *Client) restore(ctx context.Context, name string) error {
	listed, err := c.Listed(ctx, name)
	if err != nil {
		return err
	}
	old, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	switch {
	case !old.free() && old.id != listed.ID:
		return ErrBucketExists
	case listed.ID == store.BucketID{}:
		return ErrNoSuchBucket
	case old.id == listed.ID:
		return nil
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

// Discard deletes a bucket without a name, if it has no entries: what an interrupted
// CreateBucket leaves. It fails with ErrNotEmpty, or like DeleteBucket.
func (c *Client) Discard(ctx context.Context, id store.BucketID) error {
	root, err := c.maps.Load(ctx, id)
	if err == nil && root.State != partmap.Deleted {
		_, err = c.closeAndDelete(ctx, root, &Remains{})
	}
	return wrap("delete", id.String(), err)
}
