package listing

import (
	"bytes"
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Settings returns the settings of the bucket, bytes that the layer above has given it: a bucket of objects has
// settings. The result is nil if the bucket has none. Settings needs no I/O if the map of the bucket is known. It fails
// like Get.
func (b *Bucket) Settings(ctx context.Context) ([]byte, error) {
	root, err := b.present(ctx)
	if err != nil {
		return nil, wrap("read the settings", b.name, err)
	}
	return bytes.Clone(root.Settings), nil
}

// present returns the root of the bucket, the record with which its map begins. It takes the root from the cache if the
// cache has it. It fails with ErrNoSuchBucket if the bucket is deleted.
func (b *Bucket) present(ctx context.Context) (*partmap.Root, error) {
	h, err := b.acquire(ctx)
	if err == nil {
		defer h.release()
		return h.Root(), nil
	}
	if errors.Is(err, ErrBucketClosing) { // a closing bucket has no leases, but its deletion asks for the settings
		return b.root(ctx)
	}
	return nil, err
}

// root returns the newest root of the bucket, the record with which its map begins, read from the store. It fails with
// ErrNoSuchBucket if the bucket is deleted.
func (b *Bucket) root(ctx context.Context) (*partmap.Root, error) {
	id := b.id
	if id == (store.BucketID{}) {
		var err error
		if id, err = b.c.lookup(ctx, b.name, store.Serial); err != nil {
			return nil, err
		}
	}
	root, err := b.c.maps.Load(ctx, id)
	if err == nil && root.State == partmap.Deleted {
		err = ErrNoSuchBucket
	}
	return root, err
}

// ChangeSettings gives the bucket other settings. The function change gets the present settings and returns the new
// settings. It may be called several times, and its error ends the call. Once ChangeSettings has returned, every later
// call of Settings, in any process, returns these settings or newer ones. It fails with ErrNoSuchBucket,
// ErrBucketClosing, InvalidArgument, Unavailable, Timeout, Corrupt or ErrOutcomeUnknown.
func (b bucketDoor) ChangeSettings(ctx context.Context, change func(now []byte) ([]byte, error)) error {
	return wrap("change the settings", b.name, b.changeSettings(ctx, change))
}

func (b *Bucket) changeSettings(ctx context.Context, change func(now []byte) ([]byte, error)) error {
	// Each move in flight may change the root once per phase.
	const attempts = 10 * casAttempts
	for attempt := range attempts {
		root, err := b.root(ctx)
		if err != nil && attempt == 0 {
			return notBegun(err)
		}
		if err == nil && root.State == partmap.Closing {
			err = ErrBucketClosing
		}
		if err != nil {
			return err
		}
		next, err := change(bytes.Clone(root.Settings))
		if err != nil {
			return err
		}
		mine := bytes.Equal(next, root.Settings)
		if !mine {
			_, mine, err = b.c.swapState(ctx, root, func() (partmap.Change, error) {
				return mapclient.WithSettings(root, next, b.c.maps.Stamp())
			})
			if err != nil {
				return err
			}
		}
		if mine {
			// The wait is needed even if there was nothing to change: the process that made the change may not have
			// waited.
			if err := b.c.maps.Wait(ctx, root.Bucket); err != nil {
				return unknown(err)
			}
			return nil
		}
	}
	return store.Errorf(store.Unavailable, "others change the bucket at the same time: try again")
}
