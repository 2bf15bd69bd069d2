package listing

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/tracing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket is a handle of a bucket, which is a sorted namespace of keys. Its methods read and write the entries of the
// bucket. A Bucket is cheap to make and safe for concurrent use.
type Bucket struct {
	c    *Client
	name string
	// id is the bucket that the handle stands for, even if another bucket has the name by now. A zero id means the
	// bucket that has the name at each operation. The handle of the list of buckets has only an id.
	id store.BucketID
}

// Name returns the bucket's name, as it was given to Client.Bucket.
func (b *Bucket) Name() string { return b.name }

// ID returns the id of the bucket that the handle stands for, even if another bucket has the name by now. It returns
// zero if the handle stands for a name, whichever bucket has the name.
func (b *Bucket) ID() store.BucketID { return b.id }

// Entry is a key of a bucket with its value.
type Entry struct {
	Key, Value []byte
}

// acquire returns a lease on the present map of the bucket, which an operation needs to find the partitions of its
// keys. It returns ErrNoSuchBucket only after a serial read, which finds the newest value.
func (b *Bucket) acquire(ctx context.Context) (*hold, error) {
	// A cached name, or a read in the local data centre, may be out of date: it may lead to a deleted bucket, or to no
	// bucket although the name has a bucket.
	if b.id != (store.BucketID{}) {
		return b.c.acquire(ctx, b.id)
	}
	if err := checkName(b.name); err != nil {
		return nil, err
	}
	if id, ok := b.c.names.get(b.name); ok {
		h, err := b.c.acquire(ctx, id)
		if !errors.Is(err, ErrNoSuchBucket) {
			return h, err
		}
		b.c.names.Remove(b.name)
	}
	var h *hold
	find := func(level store.Level) func(context.Context) (store.BucketID, error) {
		return func(ctx context.Context) (store.BucketID, error) {
			id, err := b.c.lookup(ctx, b.name, level)
			if err == nil {
				h, err = b.c.acquire(ctx, id)
			}
			return id, err
		}
	}
	id, err := find(store.Local)(ctx)
	if errors.Is(err, ErrNoSuchBucket) {
		id, err = b.c.absent.check(ctx, b.name, find(store.Serial))
	}
	if err == nil && h == nil { // another caller has read the name, and taken a lease for itself
		h, err = b.c.acquire(ctx, id)
	}
	if err == nil {
		b.c.names.add(b.name, id)
	}
	return h, err
}

// acquire returns a lease on the present map of the bucket with the given id. An operation needs the lease to find the
// partitions of its keys.
func (c *Client) acquire(ctx context.Context, id store.BucketID) (*hold, error) {
	ctx, span := tracing.Start(ctx, "map lease")
	l, err := c.maps.Acquire(ctx, id)
	tracing.End(span, err)
	switch {
	case err == nil:
		return newHold(l), nil
	case errors.Is(err, mapclient.ErrDeleted):
		return nil, ErrNoSuchBucket
	case errors.Is(err, mapclient.ErrClosing):
		return nil, ErrBucketClosing
	case errors.Is(err, store.NotFound) && !errors.Is(err, mapclient.ErrNoClock):
		// Roots are never removed: the replica that answered is stale.
		return nil, fmt.Errorf("%w: bucket %s: %v", errNoMap, id, err)
	}
	return nil, err
}

// errNoMap means that a bucket id has no root, the record with which the map of a bucket begins. The bucket that holds
// the list of buckets has no root until the first CreateBucket.
var errNoMap = store.Errorf(store.Unavailable, "the bucket's map is missing")

// locate returns a lease on the map of the bucket, and the range of the map that contains key. The range says in which
// partition the key lies.
func (b *Bucket) locate(ctx context.Context, key []byte) (*hold, partmap.Range, error) {
	for {
		h, err := b.acquire(ctx)
		if err != nil {
			return nil, partmap.Range{}, err
		}
		rg, err := b.c.maps.Find(ctx, h.Lease, key)
		if err == nil {
			return h, rg, nil
		}
		h.release()
		if !errors.Is(err, mapclient.ErrStale) || ctx.Err() != nil {
			return nil, partmap.Range{}, err
		}
	}
}

// checkKey returns InvalidArgument if the key is empty or too long, otherwise nil.
func (b *Bucket) checkKey(key []byte) error {
	most := store.MaxKeyBytes
	if b.id == door.ListOfBuckets {
		most = MaxNameBytes
	}
	switch {
	case len(key) == 0:
		return invalid("the key is empty: 1 to %d bytes", most)
	case len(key) > most:
		return invalid("the key has %d bytes: 1 to %d", len(key), most)
	}
	return nil
}

// checkValue returns InvalidArgument if the value is longer than Options.MaxValueBytes, otherwise nil.
func (b *Bucket) checkValue(value []byte) error {
	most := b.c.o.MaxValueBytes
	if b.id == door.ListOfBuckets {
		most = infoBytes
	}
	if len(value) > most {
		return invalid("the value has %d bytes: at most %d", len(value), most)
	}
	return nil
}
