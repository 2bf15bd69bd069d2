package objects_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Clean deletes a body a day after its version has been replaced, and says what it could not delete.
func TestCleanDeletesWhatIsReplaced(t *testing.T) {
	ctx, p := t.Context(), newPlace(t, memstore.New(), objects.Never)
	stuck := "none"
	o, err := objects.New(p.c, stuckBlobs{p.blobs, &stuck}, objects.Options{
		InlineBytes: 20, Now: func() (time.Duration, time.Time) { return time.Duration(p.now.UnixNano()), p.now },
	})
	require.NoError(t, err)
	b, _, err := o.Open(ctx, "objects")
	require.NoError(t, err)
	for range 2 {
		_, err := b.Put(ctx, []byte("key"), strings.NewReader(strings.Repeat("large", 10)), objects.Meta{Size: -1})
		require.NoError(t, err)
		p.now = p.now.Add(time.Minute)
	}
	deleted, err := b.Clean(ctx)
	require.NoError(t, err)
	require.Zero(t, deleted)
	require.Len(t, p.blobs.m, 2, "who reads the body goes on")

	p.now = p.now.Add(25 * time.Hour)
	stuck = ""
	deleted, err = b.Clean(ctx)
	require.ErrorIs(t, err, store.Unavailable)
	require.Zero(t, deleted)
	stuck = "none"
	deleted, err = b.Clean(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted)
	require.Len(t, p.blobs.m, 1)

	require.NoError(t, p.c.CreateBucket(ctx, "plain"))
	_, err = o.Bucket("plain", objects.Never).Clean(ctx)
	require.ErrorIs(t, err, objects.ErrPlain)

	slow, err := objects.New(p.c, p.blobs, objects.Options{PutTimeout: 24 * time.Hour})
	require.NoError(t, err)
	_, err = slow.Bucket("objects", objects.Never).Clean(ctx)
	require.ErrorIs(t, err, store.InvalidArgument)
}
