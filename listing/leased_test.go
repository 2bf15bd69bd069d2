package listing_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// leased makes a client over s whose leases end by time. It reads and writes map clocks in
// plain, the store within s, so that polls call no hooks. It has to be in a bubble.
func leased(t *testing.T, s, plain store.Store, o listing.Options) *listing.Client {
	require.NoError(t, mapclient.InitClocks(t.Context(), plain, 1))
	m, err := mapclient.NewNetwork(quietClocks{s, plain}, mapclient.Options{Clocks: 1})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c, err := listing.New(mapclient.With(s, m), o)
	require.NoError(t, err)
	return c
}

// inBubble runs a subtest in a bubble.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// expire lets the leases of the moment end.
func expire() { time.Sleep(mapclient.DefaultLease) }

// quietClocks is a store whose map clocks are those of another.
type quietClocks struct {
	store.Store
	plain store.Store
}

func (q quietClocks) of(t store.Table) store.Store {
	if t == store.Clocks {
		return q.plain
	}
	return q.Store
}

func (q quietClocks) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	return q.of(t).Read(ctx, t, key, l)
}

func (q quietClocks) Swap(
	ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record,
) error {
	return q.of(t).Swap(ctx, t, key, old, next)
}
