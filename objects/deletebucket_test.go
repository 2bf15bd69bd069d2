package objects_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// call is one of a run that ends otherwise.
type call struct {
	n int // 0: none
	// ends ends the context of the run.
	ends context.CancelFunc
	seen int
}

// next counts a call, and reports whether it is the one.
func (c *call) next() bool {
	c.seen++
	if c.seen == c.n && c.ends != nil {
		c.ends()
	}
	return c.seen == c.n
}

// disturbed fails at the call of it, as the store of rows beside it does.
type disturbed struct {
	*blobsInMemory
	*call
}

func (d disturbed) Delete(ctx context.Context, name string) error {
	if d.next() {
		return cmp.Or(ctx.Err(), error(store.Errorf(store.Unavailable, "the place of bodies is away")))
	}
	return d.blobsInMemory.Delete(ctx, name)
}

// TestADeletionThatEndsAnywhere of a bucket with open uploads, at each call of the store of rows and of that of bodies:
// either the bucket is there with all it had, and each upload can be completed, or it is deleted, and the next one who
// deletes it finds what is left to do.
func TestADeletionThatEndsAnywhere(t *testing.T) {
	outcomes := map[string]int{}
	for _, way := range []string{"refused", "lost", "the request ends"} {
		for n := 1; ; n++ {
			ended := false
			synctest.Test(t, func(t *testing.T) {
				ended = deletionEnds(t, way, n, outcomes)
			})
			if ended {
				break
			}
		}
	}
	t.Log(outcomes)
	require.Positive(t, outcomes["it is open"])
	require.Positive(t, outcomes["it is deleted"])
}

// deletionEnds ends a deletion at its nth call, and reports whether it has fewer.
func deletionEnds(t *testing.T, way string, n int, outcomes map[string]int) (fewer bool) {
	what := fmt.Sprintf("%s at call %d", way, n)
	at := &call{}
	rows, _ := faultstore.New(memstore.New(), faultstore.Options{Choose: func(faultstore.Op, int) (f faultstore.Fault) {
		if at.next() {
			f.Kind = store.Unavailable
			switch way {
			case "refused":
				f.Ending = faultstore.Refused
			case "lost":
				f.Ending = faultstore.Lost
			}
		}
		return f
	}})
	c, err := listing.New(rows, listing.Options{})
	require.NoError(t, err)
	blobs := &blobsInMemory{m: map[string][]byte{}}
	o, err := objects.New(c, disturbed{blobs, at}, objects.Options{})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(t.Context(), "photos"))
	b, body := o.Bucket("photos", objects.Never), bytes.Repeat([]byte("x"), 10_000)
	var uploads []objects.Upload
	var part objects.Part
	for _, key := range []string{"a", "b", "c"} {
		u, err := b.CreateUpload(t.Context(), []byte(key), objects.Meta{})
		require.NoError(t, err)
		p, err := b.PutPart(t.Context(), []byte(key), u.ID, 1, bytes.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
		uploads, part = append(uploads, u), objects.Part{Number: 1, ETag: p.ETag}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if at.seen, at.n = 0, n; way == "the request ends" {
		at.ends = cancel
	}
	err = o.DeleteBucket(ctx, "photos")
	fewer = at.seen < n
	at.n = 0
	_, gone := o.Status(t.Context(), "photos")
	switch {
	case gone == nil:
		require.Error(t, err, what)
		outcomes["it is open"]++
		for _, u := range uploads {
			_, err := b.Complete(t.Context(), u.Key, u.ID, []objects.Part{part}, nil)
			if errors.Is(err, listing.ErrBucketClosing) { // it could not be opened again
				require.ErrorIs(t, o.DeleteBucket(t.Context(), "photos"), nil, what)
				require.Empty(t, blobs.m, what)
				return fewer
			}
			require.NoError(t, err, what)
			got, err := b.Get(t.Context(), u.Key, objects.Latest, objects.Range{N: -1})
			require.NoError(t, err, what)
			read, err := io.ReadAll(got.Body)
			require.NoError(t, err, what)
			require.Equal(t, body, read, what)
		}
		require.ErrorIs(t, o.DeleteBucket(t.Context(), "photos"), listing.ErrNotEmpty, what)
	default:
		require.ErrorIs(t, gone, listing.ErrNoSuchBucket, what)
		outcomes["it is deleted"]++
		_, complete := b.Complete(t.Context(), uploads[0].Key, uploads[0].ID, []objects.Part{part}, nil)
		require.ErrorIs(t, complete, listing.ErrNoSuchBucket, what)
		if err == nil {
			require.Empty(t, blobs.m, what)
		}
		require.ErrorIs(t, o.DeleteBucket(t.Context(), "photos"), listing.ErrNoSuchBucket, what)
		require.Empty(t, blobs.m, what)
		for range c.Buckets(t.Context(), "", "") {
			require.Fail(t, "it is on the list", what)
		}
	}
	return fewer
}

// stuckBlobs can't delete the first blob of which that was asked.
type stuckBlobs struct {
	*blobsInMemory
	stuck *string
}

func (s stuckBlobs) Delete(ctx context.Context, name string) error {
	if *s.stuck == "" {
		*s.stuck = name
	}
	if name == *s.stuck {
		return store.Errorf(store.Unavailable, "blob %s is stuck", name)
	}
	return s.blobsInMemory.Delete(ctx, name)
}

// TestABodyThatIsStuckKeepsNoOthers when a bucket is deleted; the bucket's name is given back once that body is gone,
// too, and only by who deletes bodies.
func TestABodyThatIsStuckKeepsNoOthers(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	blobs, stuck := &blobsInMemory{m: map[string][]byte{}}, ""
	o, err := objects.New(c, stuckBlobs{blobs, &stuck}, objects.Options{})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(ctx, "photos", []byte("c")))
	b := o.Bucket("photos", objects.Enabled)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
		require.NoError(t, err)
		_, err = b.PutPart(ctx, []byte(key), u.ID, 1, bytes.NewReader(make([]byte, 10_000)), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	for range 2 {
		require.ErrorContains(t, o.DeleteBucket(ctx, "photos"), "is stuck")
		require.Len(t, blobs.m, 1)
	}
	err = c.DeleteBucket(ctx, "photos")
	require.ErrorIs(t, err, store.Unavailable, "by a client that knows no bodies")
	require.ErrorContains(t, err, "all that belongs to it")
	stuck = "none"
	require.ErrorIs(t, o.DeleteBucket(ctx, "photos"), listing.ErrNoSuchBucket)
	require.Empty(t, blobs.m)
	require.NoError(t, c.CreateBucket(ctx, "photos"))
}

// TestADamagedRowKeepsItsBucket before the bucket is deleted, not after: nothing that can't be read is left to a
// deletion that can't be taken back.
func TestADamagedRowKeepsItsBucket(t *testing.T) {
	ctx := t.Context()
	c, o, blobs := openObjects(t)
	require.NoError(t, o.CreateBucket(ctx, "photos"))
	b := o.Bucket("photos", objects.Enabled)
	i, err := b.Put(ctx, []byte("a"), bytes.NewReader(make([]byte, 10_000)), objects.Meta{Size: -1})
	require.NoError(t, err)
	_, err = b.DeleteVersion(ctx, []byte("a"), i.ID)
	require.NoError(t, err)
	for item, err := range c.Bucket("photos").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		require.NoError(t, c.Bucket("photos").Put(ctx, item.Key, append(bytes.Clone(item.Value), 7, 7, 7)))
	}
	require.ErrorIs(t, o.DeleteBucket(ctx, "photos"), listing.ErrNotEmpty)
	_, err = o.Status(ctx, "photos")
	require.NoError(t, err)
	require.Len(t, blobs.m, 1)
}
