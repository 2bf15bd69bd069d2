package listing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestAMissingMapClockIsNoEmptyList: where the list of buckets can't be leased,
// there is no telling that it is empty.
func TestAMissingMapClockIsNoEmptyList(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	client := func(clocks int) *listing.Client {
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		c, err := listing.New(s, m, listing.Options{})
		require.NoError(t, err)
		return c
	}
	require.NoError(t, mapclient.InitClocks(ctx, s, 1))
	require.NoError(t, client(1).CreateBucket(ctx, "b"))

	c := client(mapclient.MaxClocks) // asks a clock that is not there
	var failed error
	for _, err := range c.Buckets(ctx, "", "") {
		failed = err
	}
	require.ErrorIs(t, failed, store.Unavailable)
	_, err := c.Listed(ctx, "b")
	require.ErrorIs(t, err, store.Unavailable)
}
