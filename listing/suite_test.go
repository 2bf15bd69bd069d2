package listing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

func embedded(t *testing.T, s store.Store, clock *listtest.Clock) *listtest.Env {
	c, err := listing.NewEmbedded(s, listing.Options{Timestamps: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &listtest.Env{Store: s, Client: c, Maps: c.Maps(), Clock: clock}
}

func TestOverMemory(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		return embedded(t, memstore.New(), clock)
	}, listtest.Options{})
}

func TestOverPebble(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
		require.NoError(t, err)
		return embedded(t, s, clock)
	}, listtest.Options{Steps: 1500})
}
