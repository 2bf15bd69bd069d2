package objects_test

import (
	"bytes"
	"fmt"
	"strings"
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

// TestDocumentsOfBuckets: documents are kept beside all other settings, and settings without documents look as those of
// older programs.
func TestDocumentsOfBuckets(t *testing.T) {
	ctx := t.Context()
	c, o, _ := openObjects(t)
	require.NoError(t, o.CreateBucket(ctx, "photos"))
	encoded := func() []byte {
		t.Helper()
		b, err := c.Bucket("photos").Settings(ctx)
		require.NoError(t, err)
		return b
	}
	settings := func() objects.Settings {
		t.Helper()
		_, s, err := o.Open(ctx, "photos")
		require.NoError(t, err)
		return s
	}
	byTag := objects.Rule{ID: "2", Days: 1, Tags: []objects.Pair{{Name: "a", Value: "b"}}}
	for version, rules := range map[byte]objects.Lifecycle{1: nil, 2: {{ID: "1", Days: 1}}, 3: {byTag}} {
		require.NoError(t, o.SetLifecycle(ctx, "photos", rules))
		before := encoded()
		require.Equal(t, version, before[1])
		require.NoError(t, o.SetDocument(ctx, "photos", "cors", []byte("rules\x00")))
		require.NoError(t, o.SetDocument(ctx, "photos", "acl", []byte("list")))
		require.NoError(t, o.SetDocument(ctx, "photos", "zone", []byte("1")))
		require.NoError(t, o.SetDocument(ctx, "photos", "zone", []byte("2")))
		require.NoError(t, o.SetDocument(ctx, "photos", "none", nil))
		want := objects.Settings{Lifecycle: rules, Documents: []objects.Document{
			{Name: "acl", Body: []byte("list")}, {Name: "cors", Body: []byte("rules\x00")},
			{Name: "zone", Body: []byte("2")},
		}}
		got := settings()
		require.Equal(t, want, got)
		require.Equal(t, []byte("list"), got.Document("acl"))
		require.Nil(t, got.Document("bcl"))
		with := encoded()
		require.Equal(t, []byte{'o', 4, 0, version}, with[:4], "older programs refuse what they do not know")
		for n := range with {
			_, err := objects.ParseSettings(with[:n])
			require.Error(t, err)
		}
		for at := range with {
			for _, bit := range []byte{1, 0x80} {
				with[at] ^= bit
				_, _ = objects.ParseSettings(with)
				with[at] ^= bit
			}
		}
		_, err := objects.ParseSettings(append(with, 0))
		require.Error(t, err)
		require.NoError(t, o.SetDocument(ctx, "photos", "acl", nil))
		require.NoError(t, o.SetDocument(ctx, "photos", "zone", nil))
		require.NoError(t, o.SetDocument(ctx, "photos", "cors", nil))
		require.Equal(t, before, encoded(), "older programs know it again")
	}
	const one = "\x01\x01a\x01b"
	for _, bad := range []string{
		"o\x04\x00", "o\x04\x00\x01", "o\x04\x00\x01\x00", "o\x04\x00\x01\x00\x00", "o\x04\x00\x00\x00" + one,
		"o\x04\x00\x01\x01\x00" + one, "o\x04\x00\x01\x00\x01\x01a\x00", "o\x04\x00\x01\x00\x01\x00\x01b",
		"o\x04\x00\x01\x00\x02\x01a\x01b\x01a\x01b",
		"o\x04\x00\x01\x00\x02\x01b\x01b\x01a\x01b", "o\x04\x00\x02\x00" + one,
		"o\x04\x00\x04\x00" + one, "o\x04\x00\x05\x00" + one, "o\x04\x03\x01\x00" + one, "o\x05\x00\x01\x00" + one,
		"o\x04\x00\x01\x80\x00" + one, "o\x04\x00\x01\x00\xff\xff\xff\xff\x0f\x01a\x01b",
	} {
		_, err := objects.ParseSettings([]byte(bad))
		require.ErrorIs(t, err, store.Unavailable, "%q", bad)
	}
	_, err := objects.ParseSettings([]byte("o\x04\x00\x01\x00" + one))
	require.NoError(t, err)

	for _, name := range []string{"", strings.Repeat("a", 33)} {
		require.ErrorIs(t, o.SetDocument(ctx, "photos", name, []byte("1")), store.InvalidArgument)
	}
	require.NoError(t, o.SetDocument(ctx, "photos", strings.Repeat("a", 32), make([]byte, 10<<10)))
	require.ErrorIs(t, o.SetDocument(ctx, "photos", "b", make([]byte, 6<<10)), store.InvalidArgument)
	long := objects.Lifecycle{}
	for i := range 8 {
		long = append(long, objects.Rule{ID: fmt.Sprint(i), Prefix: strings.Repeat("p", 1000), Days: 1})
	}
	err = o.SetLifecycle(ctx, "photos", long)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "at most 16384")
	require.NoError(t, o.SetDocument(ctx, "photos", strings.Repeat("a", 32), nil))
	require.NoError(t, o.SetLifecycle(ctx, "photos", long))
	require.NoError(t, c.CreateBucket(ctx, "plain"))
	require.ErrorIs(t, o.SetDocument(ctx, "plain", "cors", []byte("1")), objects.ErrPlain)
	require.ErrorIs(t, o.SetDocument(ctx, "absent", "cors", []byte("1")), listing.ErrNoSuchBucket)
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
