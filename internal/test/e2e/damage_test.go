package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// TestADamagedMapIsRefusedByName flips each of some bytes of a root, and of
// every segment: whatever is read after that is an error that names the damage,
// never a listing with a hole.
func TestADamagedMapIsRefusedByName(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	fresh := func() *listing.Client {
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		return c
	}
	bucket := func(name string, cuts int) listing.BucketInfo {
		c := fresh()
		list := make([][]byte, cuts)
		for i := range list {
			list[i] = fmt.Appendf(nil, "k%05d", i)
		}
		require.NoError(t, c.CreateBucket(ctx, name, list...))
		require.NoError(t, c.Bucket(name).Put(ctx, []byte("k"), []byte("v")))
		for info, err := range c.Buckets(ctx, name, "") {
			require.NoError(t, err)
			return info
		}
		t.Fatal("the bucket is not on the list")
		return listing.BucketInfo{}
	}
	refused := func(name, named string) {
		t.Helper()
		b := fresh().Bucket(name)
		_, err := b.List(ctx, listing.Query{})
		require.ErrorIs(t, err, store.Corrupt)
		require.ErrorContains(t, err, named)
		_, err = b.Get(ctx, []byte("k"))
		require.ErrorIs(t, err, store.Corrupt)
		require.ErrorIs(t, b.Put(ctx, []byte("k"), []byte("w")), store.Corrupt)
	}

	small := bucket("small", 5)
	record, err := s.Read(ctx, store.Roots, small.ID[:], store.Serial)
	require.NoError(t, err)
	for at := 0; at < len(record.Blob); at += 7 {
		record.Blob[at] ^= 0x10
		next := store.Record{
			Version: store.Version{Epoch: record.Epoch + 1, Token: storekit.NewToken()}, Blob: record.Blob,
		}
		require.NoError(t, s.Swap(ctx, store.Roots, small.ID[:], record.Version, next))
		record.Version = next.Version
		refused("small", small.ID.String())
		record.Blob[at] ^= 0x10
	}

	large := bucket("large", 5000)
	ids, err := s.ScanNodes(ctx, large.ID, store.NodeID{}, 100)
	require.NoError(t, err)
	require.Greater(t, len(ids), 3, "the map has segments")
	for _, id := range ids {
		blob, err := s.Node(ctx, large.ID, id)
		require.NoError(t, err)
		blob[len(blob)/2] ^= 1
		require.NoError(t, s.WriteNode(ctx, large.ID, id, blob))
	}
	refused("large", "segment ")
	_, err = fresh().Bucket("large").List(ctx, listing.Query{Reverse: true})
	require.ErrorIs(t, err, store.Corrupt)
}
