package objects

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/evenkeel/evenkeel/store"
)

// ownerMark is the blob that says whose the others are. No bucket has a part of its name: see bucketPart.
const ownerMark = "_owner"

// ErrOthersBodies: a store of blobs belongs to another store of rows.
var ErrOthersBodies = errors.New("the bodies there belong to another store")

// Claim makes blobs those of one store of rows, by a mark among them, and fails with ErrOthersBodies, an
// InvalidArgument, where they are another one's: each would take the blobs of the other for orphans. owner is a short
// text of letters and digits that tells the store of rows from others. Of two that claim new blobs at the same moment
// both may succeed; the next call of one of them fails.
func Claim(ctx context.Context, blobs Blobs, owner string) error {
	there, err := Owner(ctx, blobs)
	if err == nil && there == "" {
		text := owner + "\nThe bodies here belong to the store of evenkeel with this id. Do not delete this.\n"
		err = blobs.Create(ctx, ownerMark, strings.NewReader(text), int64(len(text)))
		if err == nil {
			there, err = Owner(ctx, blobs)
		}
	}
	switch {
	case err != nil:
		return store.Wrap("claim the bodies", err)
	case there != owner:
		return store.Errorf(store.InvalidArgument, "%w (%s; this one is %s): give this one a place of its own; or, if that "+
			"store is gone for good and this one shall have the bodies, delete %s there", ErrOthersBodies, there, owner, ownerMark)
	}
	return nil
}

// Owner returns who has claimed blobs; empty: nobody has.
func Owner(ctx context.Context, blobs Blobs) (string, error) {
	const most = 1 << 10
	body, size, err := blobs.Open(ctx, ownerMark, 0, 0)
	if err == nil {
		_ = body.Close()
		body, _, err = blobs.Open(ctx, ownerMark, 0, min(size, most))
	}
	if errors.Is(err, store.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	owner, _, whole := strings.Cut(string(text), "\n")
	if err == nil && (!whole || owner == "") {
		err = store.Errorf(store.Corrupt, "%s among the bodies does not say whose they are", ownerMark)
	}
	return owner, err
}
