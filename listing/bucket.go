package listing

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket is one sorted namespace of keys. It is only a name with its client:
// cheap to make and to drop, and safe for concurrent use.
type Bucket struct {
	c    *Client
	name string
	// id is set for buckets that have no name in the directory: the list of
	// buckets.
	id store.BucketID
}

// Name returns the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Entry is a key with its value.
type Entry struct {
	Key, Value []byte
}

// acquire takes a lease on the bucket's present map. What is remembered of a
// name, and what a local read says, may be older than the truth: it may name a
// deleted bucket, or none. So only a serial read says that there is no bucket.
func (b *Bucket) acquire(ctx context.Context) (*hold, error) {
	if b.id != (store.BucketID{}) {
		return b.c.acquire(ctx, b.id)
	}
	if err := checkName(b.name); err != nil {
		return nil, err
	}
	if id, ok := b.c.names.Get(b.name); ok {
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
	if err == nil && h == nil { // somebody else has found it
		h, err = b.c.acquire(ctx, id)
	}
	if err == nil {
		b.c.names.Add(b.name, id)
	}
	return h, err
}

// acquire takes a lease on a bucket by its id.
func (c *Client) acquire(ctx context.Context, id store.BucketID) (*hold, error) {
	l, err := c.maps.Acquire(ctx, id)
	switch {
	case err == nil:
		return newHold(l), nil
	case errors.Is(err, mapclient.ErrDeleted):
		return nil, ErrNoSuchBucket
	case errors.Is(err, mapclient.ErrClosing):
		return nil, ErrBucketClosing
	case errors.Is(err, store.NotFound) && !errors.Is(err, mapclient.ErrNoClock):
		// Roots are never removed: a missing one is a replica's, not the truth.
		return nil, fmt.Errorf("%w: bucket %s: %v", errNoMap, id, err)
	}
	return nil, err
}

// errNoMap: the id has no root. Of the list of buckets this means that it was
// not made yet.
var errNoMap = store.Errorf(store.Unavailable, "the bucket's map is missing")

// locate takes a lease and finds the range of key under it.
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

// checkKey refuses keys that Options do. The list of buckets takes every name.
func (b *Bucket) checkKey(key []byte) error {
	most := store.MaxKeyBytes
	if b.id != (store.BucketID{}) {
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

func (b *Bucket) checkValue(value []byte) error {
	most := b.c.o.MaxValueBytes
	if b.id != (store.BucketID{}) {
		most = infoBytes
	}
	if len(value) > most {
		return invalid("the value has %d bytes: at most %d", len(value), most)
	}
	return nil
}
