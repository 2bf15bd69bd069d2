package mapclient

import (
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// WithState returns a change of the state of a bucket, and of nothing else. The parameter old is the present root of
// the bucket's map, and the parameter to is the new state. The state may go from open to closing, and from closing to
// open or deleted. Any other step fails with InvalidArgument.
func WithState(old *partmap.Root, to partmap.State, s partmap.Stamp) (partmap.Change, error) {
	legal := old.State == partmap.Open && to == partmap.Closing ||
		old.State == partmap.Closing && (to == partmap.Open || to == partmap.Deleted)
	if !legal {
		return partmap.Change{}, store.Errorf(
			store.InvalidArgument, "bucket %s can't go from %s to %s", old.Bucket, old.State, to,
		)
	}
	c := partmap.Again(old, s)
	c.Next.State = to
	return c, nil
}

// WithSettings returns a change of the settings of a bucket, and of nothing else. old is the present root of the
// bucket's map. WithSettings fails with InvalidArgument if the bucket is deleted. The new root keeps the given slice,
// so the caller must not change the slice afterwards. Only Swap checks the size of the settings, later.
func WithSettings(old *partmap.Root, settings []byte, s partmap.Stamp) (partmap.Change, error) {
	if old.State == partmap.Deleted {
		return partmap.Change{}, store.Errorf(store.InvalidArgument, "bucket %s is deleted", old.Bucket)
	}
	c := partmap.Again(old, s)
	c.Next.Settings = settings
	return c, nil
}
