package scheduler

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// endsSoon is a context that ends after a number of looks at it.
type endsSoon struct {
	context.Context
	looks int
}

func (c *endsSoon) Err() error {
	if c.looks--; c.looks >= 0 {
		return nil
	}
	return context.Canceled
}

// A term may end at any moment, and so while the scheduler gives turns to the buckets of its shards.
func TestATermThatEndsWhileTurnsBegin(t *testing.T) {
	for looks := range 8 {
		synctest.Test(t, func(t *testing.T) {
			c, err := listing.NewEmbedded(memstore.New(), listing.Options{})
			require.NoError(t, err)
			defer c.Maps().Close()
			g := New(memstore.New(), c.Maps(), Options{})
			var id store.BucketID
			of := &term{ctx: &endsSoon{t.Context(), looks}}
			g.enter(shard.All, of)
			g.mu.Lock()
			g.bucket(id).want()
			g.mu.Unlock()
			g.start()
			of.work.Wait()
		})
	}
}
