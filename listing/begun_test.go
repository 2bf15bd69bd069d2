package listing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestNothingIsBegun: a call that fails before its first write says so. With another data centre away, the first thing
// that fails is a read at Serial, and whoever called need not look whether the bucket is there. TestEachCallFails holds
// calls to what they say.
func TestNothingIsBegun(t *testing.T) {
	inner := memstore.New()
	before, err := listing.New(inner, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, before.CreateBucket(t.Context(), "old"))
	for name, call := range map[string]func(ctx context.Context, c *listing.Client) error{
		"create": func(ctx context.Context, c *listing.Client) error { return c.CreateBucket(ctx, "new") },
		"delete": func(ctx context.Context, c *listing.Client) error { return c.DeleteBucket(ctx, "old") },
		"change settings": func(ctx context.Context, c *listing.Client) error {
			return door.Bucket(c.Bucket("old")).ChangeSettings(ctx,
				func([]byte) ([]byte, error) { return []byte("s"), nil })
		},
	} {
		s, _ := faultstore.New(inner, faultstore.Options{PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Read: {Refuse: 1}}})
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		err = call(t.Context(), c)
		require.ErrorIs(t, err, store.ErrUnwritable, name)
		require.Equal(t, store.Unavailable, store.KindOf(err), name)
	}
}
