package care

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/evenkeel/evenkeel/store"
)

// OwnerMark is the name of a blob that identifies the owner of a store of blobs: the one store of rows to which all
// blobs in it belong. The names of other blobs begin with the name of their bucket, and never with an underscore.
const OwnerMark = "_owner"

// marked has those methods of a store of blobs (objects.Blobs) by which Claim and Owner write and read the mark of the
// owner.
type marked interface {
	Create(ctx context.Context, name string, body io.Reader, size int64) error
	Open(ctx context.Context, name string, offset, n int64) (body io.ReadCloser, size int64, err error)
}

// ErrOthersBodies means that a store of blobs (bodies of objects) is marked as belonging to another store of rows. A
// process that gets this error must not use the blobs.
var ErrOthersBodies = errors.New("the bodies there belong to another store")

// Claim marks a store of blobs as belonging to one store of rows. Without the mark, two stores of rows could share the
// blobs, and each would delete the other's as useless. owner is a text of letters and digits that identifies the store
// of rows. If the blobs have the mark of another owner, Claim fails with ErrOthersBodies, an InvalidArgument. If two
// owners claim new blobs at the same moment, both calls may succeed. Then the next Claim by one of the owners fails.
func Claim(ctx context.Context, blobs marked, owner string) error {
	there, err := Owner(ctx, blobs)
	if err == nil && there == "" {
		text := owner + "\nThe bodies here belong to the store of evenkeel with this id. Do not delete this.\n"
		err = blobs.Create(ctx, OwnerMark, strings.NewReader(text), int64(len(text)))
		if err == nil {
			there, err = Owner(ctx, blobs)
		}
	}
	switch {
	case err != nil:
		return store.Wrap("claim the bodies", err)
	case there != owner:
		return store.Errorf(store.InvalidArgument, "%w (%s; this one is %s): give this one a place of its own; or, if "+
			"that store is gone for good and this one shall have the bodies, delete %s there",
			ErrOthersBodies, there, owner, OwnerMark)
	}
	return nil
}

// Owner returns the text that identifies the owner of a store of blobs, as Claim has written the text. Owner returns ""
// if the blobs have no mark of an owner, and fails with Corrupt if the mark is damaged.
func Owner(ctx context.Context, blobs marked) (string, error) {
	const most = 1 << 10
	body, size, err := blobs.Open(ctx, OwnerMark, 0, 0)
	if err == nil {
		_ = body.Close()
		body, _, err = blobs.Open(ctx, OwnerMark, 0, min(size, most))
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
		err = store.Errorf(store.Corrupt, "%s among the bodies does not say whose they are", OwnerMark)
	}
	return owner, err
}
