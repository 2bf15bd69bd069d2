package objects_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkPages measures pages of 1,000 of the newest of 1, 10 and 100 versions, beside a plain page
// of as many entries with values as long as the rows have; and puts of 100 bytes.
func BenchmarkPages(b *testing.B) {
	const keys = 3000
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(b, err)
	defer s.Close()
	c, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(b, err)
	o, err := objects.New(c, &blobsInMemory{m: map[string][]byte{}}, objects.Options{})
	require.NoError(b, err)
	ctx, body := b.Context(), bytes.Repeat([]byte("x"), 100)
	key := func(i int) []byte { return fmt.Appendf(nil, "2026/11/23/object-%06d.jpg", i) }

	require.NoError(b, c.CreateBucket(ctx, "plain"))
	plain := c.Bucket("plain")
	for i := range keys {
		require.NoError(b, plain.Put(ctx, key(i), append(body, "a record's metadata, some 30 B"...)))
	}
	b.Run("plain page", func(b *testing.B) {
		for b.Loop() {
			page, err := plain.List(ctx, listing.Query{})
			if err != nil || len(page.Items) != 1000 {
				b.Fatal(len(page.Items), err)
			}
		}
	})
	b.Run("plain put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			require.NoError(b, plain.Put(ctx, key(i%keys), append(body, "a record's metadata, some 30 B"...)))
		}
	})
	for _, versions := range []int{1, 10, 100} {
		name := fmt.Sprintf("v%d", versions)
		require.NoError(b, c.CreateBucket(ctx, name))
		bucket := o.Bucket(name, objects.Versioned)
		for i := range keys {
			for range versions {
				_, err := bucket.Put(ctx, key(i), bytes.NewReader(body), objects.Meta{Size: -1})
				require.NoError(b, err)
			}
		}
		b.Run(fmt.Sprintf("latest of %d", versions), func(b *testing.B) {
			for b.Loop() {
				page, err := bucket.List(ctx, objects.Query{})
				if err != nil || len(page.Items) != 1000 {
					b.Fatal(len(page.Items), err)
				}
			}
		})
		b.Run(fmt.Sprintf("versions of %d", versions), func(b *testing.B) {
			for b.Loop() {
				page, err := bucket.ListVersions(ctx, objects.Query{})
				if err != nil || len(page.Items) != 1000 {
					b.Fatal(len(page.Items), err)
				}
			}
		})
	}
	bucket := o.Bucket("v1", objects.Versioned)
	b.Run("put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := bucket.Put(ctx, key(i%keys), bytes.NewReader(body), objects.Meta{Size: -1})
			require.NoError(b, err)
		}
	})
}
