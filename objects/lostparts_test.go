package objects_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// TestACompletionLooksAtItsParts: none is acknowledged of which a body is not there as it was uploaded.
func TestACompletionLooksAtItsParts(t *testing.T) {
	for what, harm := range map[string]func(m map[string][]byte, name string){
		"it is gone":    func(m map[string][]byte, name string) { delete(m, name) },
		"it is shorter": func(m map[string][]byte, name string) { m[name] = m[name][1:] },
	} {
		t.Run(what, func(t *testing.T) {
			ctx := t.Context()
			_, o, blobs := openObjects(t)
			require.NoError(t, o.CreateBucket(ctx, "photos"))
			b, key := o.Bucket("photos", objects.Never), []byte("a")
			u, err := b.CreateUpload(ctx, key, objects.Meta{})
			require.NoError(t, err)
			named := make([]objects.Part, 2)
			upload := func(number int) {
				body := bytes.Repeat([]byte{byte(number)}, 10_000)
				p, err := b.PutPart(ctx, key, u.ID, number, bytes.NewReader(body), objects.Meta{Size: -1})
				require.NoError(t, err)
				named[number-1] = objects.Part{Number: number, ETag: p.ETag}
			}
			upload(1)
			before := len(blobs.m)
			require.Equal(t, 1, before)
			for name := range blobs.m {
				harm(blobs.m, name)
			}
			upload(2)
			_, err = b.Complete(ctx, key, u.ID, named, nil)
			require.ErrorIs(t, err, objects.ErrInvalidPart)
			require.ErrorContains(t, err, "part 1 is lost")
			_, err = b.Get(ctx, key, objects.Latest, objects.Range{N: -1})
			require.ErrorIs(t, err, listing.ErrNotFound)
			upload(1)
			_, err = b.Complete(ctx, key, u.ID, named, nil)
			require.NoError(t, err, "it can be uploaded again")
			got, err := b.Get(ctx, key, objects.Latest, objects.Range{N: -1})
			require.NoError(t, err)
			read, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Len(t, read, 20_000)
		})
	}
}
