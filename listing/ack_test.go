package listing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestAcknowledgement: a write whose lease ran out under it counts only if its
// key is still in the same partition and phase of the same open bucket; and it
// is never done again elsewhere.
func TestAcknowledgement(t *testing.T) {
	for _, test := range []struct {
		name, key string
		moves     []partmap.Part // what begins to move meanwhile
		closing   bool
		counts    bool
	}{
		{name: "nothing changed", key: "x", counts: true},
		{name: "the range moves", key: "x", moves: []partmap.Part{{To: store.PartitionID{1}}}},
		{name: "the key's half moves", key: "x",
			moves: []partmap.Part{{}, {Start: []byte("m"), To: store.PartitionID{1}}}},
		{name: "the other half moves", key: "a",
			moves: []partmap.Part{{}, {Start: []byte("m"), To: store.PartitionID{1}}}, counts: true},
		{name: "the bucket is being deleted", key: "x", closing: true},
	} {
		for op, write := range map[string]func(ctx context.Context, b *listing.Bucket) error{
			"Put":    func(ctx context.Context, b *listing.Bucket) error { return b.Put(ctx, []byte(test.key), nil) },
			"Delete": func(ctx context.Context, b *listing.Bucket) error { return b.Delete(ctx, []byte(test.key)) },
			"PutBatch": func(ctx context.Context, b *listing.Bucket) error {
				return b.PutBatch(ctx, []listing.Entry{{Key: []byte(test.key)}})
			},
		} {
			inBubble(t, test.name+"/"+op, func(t *testing.T) {
				ctx := t.Context()
				hooked := &listtest.Hooked{Store: memstore.New()}
				c := leased(t, hooked, hooked.Store, listing.Options{})
				require.NoError(t, c.CreateBucket(ctx, "b"))
				b := c.Bucket("b")
				var id store.BucketID
				for info, err := range c.Buckets(ctx, "", "") {
					require.NoError(t, err)
					id = info.ID
				}
				calls := 0
				hooked.Hook = func() {
					if calls++; calls > 1 {
						return
					}
					root, err := mapclient.Of(c).Load(ctx, id)
					require.NoError(t, err)
					var change partmap.Change
					switch {
					case test.closing:
						change, err = mapclient.WithState(root, partmap.Closing, mapclient.Of(c).Stamp())
					case test.moves != nil:
						e := partmap.NewEdit(
							root, mapclient.Of(c).Stamp(), func(n store.NodeID) ([]byte, error) { return hooked.Node(ctx, id, n) },
						)
						_, err = e.Begin(partmap.Move{Parts: test.moves})
						require.NoError(t, err)
						change, err = e.Change()
					}
					require.NoError(t, err)
					if change.Next != nil {
						require.NoError(t, mapclient.Of(c).Swap(ctx, change))
					}
					expire()
				}
				err := write(ctx, b)
				hooked.Hook = nil
				if test.counts {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
				}
				require.Equal(t, 2, calls, "one call, before and after it")
			})
		}
	}
}
