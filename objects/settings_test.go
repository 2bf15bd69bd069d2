package objects_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func openObjects(t *testing.T) (*listing.Client, *objects.Objects, *blobsInMemory) {
	t.Helper()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	blobs := &blobsInMemory{m: map[string][]byte{}}
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(t, err)
	return c, o, blobs
}

func TestStatusOfBuckets(t *testing.T) {
	ctx := t.Context()
	c, o, _ := openObjects(t)
	require.NoError(t, o.CreateBucket(ctx, "photos", []byte("a\x00b"), []byte("m")))
	require.ErrorIs(t, o.CreateBucket(ctx, "photos"), listing.ErrBucketExists)
	is := func(want objects.Status) {
		t.Helper()
		got, err := o.Status(ctx, "photos")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	is(objects.Never)
	require.ErrorIs(t, o.SetStatus(ctx, "photos", objects.Never), store.InvalidArgument)
	for _, to := range []objects.Status{objects.Suspended, objects.Enabled, objects.Enabled, objects.Suspended} {
		require.NoError(t, o.SetStatus(ctx, "photos", to))
		is(to)
	}
	require.NoError(t, c.CreateBucket(ctx, "plain"))
	_, err := o.Status(ctx, "plain")
	require.ErrorIs(t, err, objects.ErrPlain)
	require.ErrorIs(t, o.SetStatus(ctx, "plain", objects.Enabled), objects.ErrPlain)
	require.ErrorIs(t, o.DeleteBucket(ctx, "plain"), objects.ErrPlain)
	_, err = o.Status(ctx, "none")
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	require.NoError(t, door.Client(c).CreateWith(ctx, "newer", []byte("o\x03\x00")))
	_, err = o.Status(ctx, "newer")
	require.ErrorContains(t, err, "newer")
}

func TestBucketsAreDeletedWithTheirBlobs(t *testing.T) {
	ctx := t.Context()
	body := bytes.Repeat([]byte("x"), 10_000)
	for name, status := range map[string]objects.Status{
		"without versions": objects.Never, "with versions": objects.Enabled, "suspended": objects.Suspended,
	} {
		t.Run(name, func(t *testing.T) {
			_, o, blobs := openObjects(t)
			require.NoError(t, o.CreateBucket(ctx, "photos", []byte("m")))
			if status != objects.Never {
				require.NoError(t, o.SetStatus(ctx, "photos", status))
			}
			b := o.Bucket("photos", status)
			for _, key := range []string{"a", "m", "m", "z"} {
				_, err := b.Put(ctx, []byte(key), bytes.NewReader(body), objects.Meta{Size: -1})
				require.NoError(t, err)
			}
			require.ErrorIs(t, o.DeleteBucket(ctx, "photos"), listing.ErrNotEmpty)
			require.Len(t, blobs.m, 4)
			for _, key := range []string{"a", "m", "z"} {
				_, err := b.Delete(ctx, []byte(key))
				require.NoError(t, err)
			}
			if status != objects.Never {
				require.ErrorIs(t, o.DeleteBucket(ctx, "photos"), listing.ErrNotEmpty, "markers count")
				page, err := b.ListVersions(ctx, objects.Query{})
				require.NoError(t, err)
				for i := range page.Items {
					_, err := b.DeleteVersion(ctx, page.Items[i].Key, page.Items[i].ID)
					require.NoError(t, err)
				}
			}
			require.NoError(t, o.DeleteBucket(ctx, "photos"))
			require.Empty(t, blobs.m)
			require.NoError(t, o.CreateBucket(ctx, "photos"))
			page, err := b.ListVersions(ctx, objects.Query{})
			require.NoError(t, err)
			require.Empty(t, page.Items)
		})
	}
}

// Uploads do not keep a bucket, and their parts go with it.
func TestBucketsAreDeletedWithTheirUploads(t *testing.T) {
	ctx := t.Context()
	_, o, blobs := openObjects(t)
	require.NoError(t, o.CreateBucket(ctx, "photos"))
	b := o.Bucket("photos", objects.Never)
	body := bytes.Repeat([]byte("x"), 10_000)
	var parts []objects.Part
	var done objects.Upload
	for _, key := range []string{"a", "z"} {
		u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
		require.NoError(t, err)
		p, err := b.PutPart(ctx, []byte(key), u.ID, 1, bytes.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
		parts, done = []objects.Part{{Number: 1, ETag: p.ETag}}, u
	}
	_, err := b.Complete(ctx, []byte("z"), done.ID, parts, nil)
	require.NoError(t, err)
	require.ErrorIs(t, o.DeleteBucket(ctx, "photos"), listing.ErrNotEmpty)
	require.Len(t, blobs.m, 2)
	_, err = b.Delete(ctx, []byte("z"))
	require.NoError(t, err)
	require.NoError(t, o.DeleteBucket(ctx, "photos"))
	require.Empty(t, blobs.m)
}
