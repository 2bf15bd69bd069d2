package listing

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/tracing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket is a handle of one sorted namespace of keys: a name with its client. It is cheap
// to make and safe for concurrent use.
type Bucket struct {
	c    *Client
	name string
	// id, where it is set, is what the handle is of, whatever the name means by now. The list of buckets has only an id.
	id store.BucketID
}

// Name returns the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Entry is a key with its value.
type Entry struct {
	Key, Value []byte
}

// acquire takes a lease on the bucket's present map. Cached names and local reads may be
// stale, and name a deleted bucket or none. So only a serial read decides that there is no
// bucket.
func (b *Bucket) acquire(ctx context.Context) (*hold, error) {
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
	if err == nil && h == nil { // the read of another caller has found it
		h, err = b.c.acquire(ctx, id)
	}
	if err == nil {
		b.c.names.add(b.name, id)
	}
	return h, err
}

// acquire takes a lease on a bucket by its id.
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

// errNoMap means that a bucket id has no root. The list of buckets has none until the
// first CreateBucket.
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

// checkKey refuses keys of a wrong length.
func (b *Bucket) checkKey(key []byte) error {
	most := store.MaxKeyBytes
	if b.id == listID {
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
	if b.id == listID {
		most = infoBytes
	}
	if len(value) > most {
		return invalid("the value has %d bytes: at most %d", len(value), most)
	}
	return nil
}
