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
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestFastETags: only a body that is a blob and was put whole has another ETag than one in a store without the option:
// none that looks like an MD5, the same in all answers, and each version another.
func TestFastETags(t *testing.T) {
	c, err := listing.NewEmbedded(memstore.New(), listing.Options{})
	require.NoError(t, err)
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	o, err := objects.New(c, blobs, objects.Options{FastETags: true})
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := o.Bucket("b", objects.Versioned)
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
	copied, err := b.Copy(ctx, []byte("copy"), objects.Source{Bucket: b, Key: []byte("b")}, nil)
	require.NoError(t, err)
	require.Equal(t, copied.ID.String()+"-1", copied.ETag())

	u, err := b.CreateUpload(ctx, []byte("u"), objects.Meta{})
	require.NoError(t, err)
	p, err := b.PutPart(ctx, []byte("u"), u.ID, 1, bytes.NewReader([]byte(body)), objects.Meta{Size: -1})
	require.NoError(t, err)
	require.Equal(t, sum(body), p.ETag, "parts are put at once, and clients compare")
	named := []objects.NamedPart{{Number: 1, ETag: p.ETag}}
	whole, err := b.Complete(ctx, []byte("u"), u.ID, named, nil)
	require.NoError(t, err)
	own := md5.Sum([]byte(body))
	require.Equal(t, fmt.Sprintf("%x-1", md5.Sum(own[:])), whole.ETag())
	marker, err := b.Delete(ctx, []byte("u"))
	require.NoError(t, err)
	require.Empty(t, marker.ETag())
}
