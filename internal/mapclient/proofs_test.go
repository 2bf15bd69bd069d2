package mapclient_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// TestUsageCountsWhatProvesARoot: a cached bucket takes no more memory than Usage says, also if each is proven by
// another poll, of a clock that remembers as many bumps as it can.
func TestUsageCountsWhatProvesARoot(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		root, err := w.Load(w.ctx, w.id)
		require.NoError(t, err)
		for range 256 {
			change := partmap.Again(root, w.Stamp())
			require.NoError(t, w.Swap(w.ctx, change))
			root = change.Next
		}
		ids := make([]store.BucketID, 1000)
		for i := range ids {
			ids[i] = store.BucketID(uuid.New())
			_, err := w.Create(w.ctx, ids[i], nil)
			require.NoError(t, err)
		}
		use := func(id store.BucketID) {
			l, err := w.Acquire(w.ctx, id)
			require.NoError(t, err)
			l.Release()
		}
		for _, id := range ids {
			use(id)
		}
		before := mapbench.Heap()
		for _, id := range ids {
			use(id)
			time.Sleep(time.Second) // another poll
		}
		each := float64(mapbench.Heap()-before) / float64(len(ids))
		require.Less(t, each, 200.0, "bytes per bucket for the poll that proves its root")
		require.Equal(t, int64(len(ids)+1), w.Usage().Buckets)
	})
}
