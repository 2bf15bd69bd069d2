package executor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A mover of before notes that takes over in draining copies a note as a row, and so hides the entry of its key. So
// none is left in a keyspace that such programs may use.
func TestNoNotesWhereProgramsOfBeforeMove(t *testing.T) {
	for _, versioned := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, s := t.Context(), memstore.New()
			o := mapclient.Options{Lease: time.Second, MaxClockSkew: time.Second}
			if !versioned {
				_, err := mapclient.AgreeOnLease(ctx, s, o.Lease, false)
				require.NoError(t, err)
			}
			maps, err := mapclient.Join(ctx, s, o, false)
			require.NoError(t, err)
			defer maps.Close()
			c, err := listing.New(mapclient.With(s, maps), listing.Options{})
			require.NoError(t, err)
			require.NoError(t, c.CreateBucket(ctx, "b"))
			require.NoError(t, c.Bucket("b").Put(ctx, []byte("a"), []byte("value")))
			owner, err := door.Client(c).Owner(ctx, "b")
			require.NoError(t, err)
			root, err := maps.Load(ctx, owner.ID)
			require.NoError(t, err)
			rg := partmap.Range{Entry: root.Entries[0]}
			x := executor.New(s, maps, owner.ID, executor.Options{})
			x.Add(move.Refresh(&rg))
			require.NoError(t, x.Run(ctx))
			source := store.Partition{Bucket: owner.ID, ID: rg.Partition}
			page, err := s.Slice(ctx, source, store.Bounds{}, store.SliceOptions{Limit: 2})
			require.NoError(t, err)
			require.Equal(t, versioned, len(page.Rows) == 1, "%v", page.Rows)
		})
	}
}
