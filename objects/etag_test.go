package objects_test

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// bucketsByMD5 makes a bucket with bodies in files, and returns it with any Options.MD5Bytes.
func bucketsByMD5(t *testing.T) func(md5Bytes int64) *objects.Bucket {
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, blobs.Close()) })
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	return func(md5Bytes int64) *objects.Bucket {
		o, err := objects.New(c, blobs, objects.Options{MD5Bytes: md5Bytes})
		require.NoError(t, err)
		return o.Bucket("b", objects.Enabled)
	}
}

// TestETagsWithoutMD5: where the MD5 is not taken, a body that is a blob and was put whole has another ETag: none that
// looks like an MD5, the same in all answers, and each version another.
func TestETagsWithoutMD5(t *testing.T) {
	ctx, b := t.Context(), bucketsByMD5(t)(-1)
	sum := func(body string) string { return fmt.Sprintf("%x", md5.Sum([]byte(body))) }
	put := func(key string, size int) (body, etag string) {
		body = string(bytes.Repeat([]byte(key), size))
		info, err := b.Put(ctx, []byte(key), bytes.NewReader([]byte(body)), objects.Meta{Size: -1})
		require.NoError(t, err)
		return body, info.ETag()
	}
	for _, size := range []int{0, 1, 4 << 10} {
		body, etag := put("i", size)
		require.Equal(t, sum(body), etag, "a body of %d bytes is in the row", size)
	}
	body, first := put("b", 4<<10+1)
	_, second := put("b", 4<<10+1)
	require.Regexp(t, `^[0-9a-f]{28}-1$`, first)
	require.Regexp(t, `^[0-9a-f]{28}-1$`, second)
	require.NotEqual(t, first, second)

	head, err := b.Head(ctx, []byte("b"), objects.Latest)
	require.NoError(t, err)
	require.Equal(t, second, head.ETag())
	page, err := b.ListVersions(ctx, objects.Query{Prefix: []byte("b")})
	require.NoError(t, err)
	require.Equal(t, second, page.Items[0].ETag())
	require.Equal(t, first, page.Items[1].ETag())
	copied, err := copyOf(ctx, b, []byte("copy"), []byte("b"), objects.Latest, nil)
	require.NoError(t, err)
	require.Equal(t, copied.ID.String()+"-1", copied.ETag())

	u, err := b.CreateUpload(ctx, []byte("u"), objects.Meta{})
	require.NoError(t, err)
	p, err := b.PutPart(ctx, []byte("u"), u.ID, 1, bytes.NewReader([]byte(body)), objects.Meta{Size: -1})
	require.NoError(t, err)
	require.Equal(t, sum(body), p.ETag, "parts are put at once, and clients compare")
	named := []objects.Part{{Number: 1, ETag: p.ETag}}
	whole, err := b.Complete(ctx, []byte("u"), u.ID, named, nil)
	require.NoError(t, err)
	own := md5.Sum([]byte(body))
	require.Equal(t, fmt.Sprintf("%x-1", md5.Sum(own[:])), whole.ETag())
	marker, err := b.Delete(ctx, []byte("u"))
	require.NoError(t, err)
	require.Empty(t, marker.ETag())
}

// TestWhichBodiesHaveAnMD5: those whose length is not known to be above the limit, and those that come with it.
func TestWhichBodiesHaveAnMD5(t *testing.T) {
	ctx, bucket := t.Context(), bucketsByMD5(t)
	given := md5.Sum([]byte("another body"))
	for _, x := range []struct {
		limit, size  int64
		unknown, own bool   // is the size unknown before; does the MD5 come with the body
		want         string // "": one that is no MD5
	}{
		{limit: 0, size: 16 << 20, want: "taken"},
		{limit: 0, size: 16<<20 + 1},
		{limit: 0, size: 16<<20 + 1, unknown: true, want: "taken"},
		{limit: 0, size: 16<<20 + 1, own: true, want: "given"},
		{limit: 5000, size: 5000, want: "taken"},
		{limit: 5000, size: 5001},
		{limit: 1, size: 4096, want: "taken"}, // in the row
		{limit: -1, size: 4096, want: "taken"},
		{limit: -1, size: 4097, unknown: true},
		{limit: -1, size: 4096, own: true, want: "given"},
		{limit: 0, size: 1, own: true, want: "given"},
		{limit: 0, size: 5000, own: true, want: "given"},
	} {
		what := fmt.Sprintf("%+v", x)
		b, body, m := bucket(x.limit), make([]byte, x.size), objects.Meta{Size: x.size}
		if x.unknown {
			m.Size = -1
		}
		if x.own {
			m.MD5 = given[:] // only who gives it compares it
		}
		put, err := b.Put(ctx, []byte("k"), bytes.NewReader(body), m)
		require.NoError(t, err, what)
		sum := md5.Sum(body)
		switch x.want {
		case "taken":
			require.Equal(t, fmt.Sprintf("%x", sum), put.ETag(), what)
			require.Equal(t, sum[:], put.Meta().MD5, what)
		case "given":
			require.Equal(t, fmt.Sprintf("%x", given), put.ETag(), what)
		default:
			require.Equal(t, put.ID.String()+"-1", put.ETag(), what)
			require.Nil(t, put.Meta().MD5, what)
		}
		copied, err := copyOf(ctx, b, []byte("copy"), []byte("k"), objects.Latest, nil)
		require.NoError(t, err, what)
		require.Equal(t, put.Meta().MD5, copied.Meta().MD5, what)

		u, err := b.CreateUpload(ctx, []byte("u"), objects.Meta{})
		require.NoError(t, err)
		p, err := b.PutPart(ctx, []byte("u"), u.ID, 1, bytes.NewReader(body), m)
		require.NoError(t, err)
		if x.own {
			sum = given
		}
		require.Equal(t, fmt.Sprintf("%x", sum), p.ETag, what)
	}
	for _, wrong := range [][]byte{{0}, make([]byte, 15), make([]byte, 17)} {
		_, err := bucket(0).Put(ctx, []byte("k"), bytes.NewReader(nil), objects.Meta{MD5: wrong})
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}
