package scheduler

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// far is a store at some distance.
type far struct{ store.Store }

func (f far) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	time.Sleep(80 * time.Millisecond)
	defer time.Sleep(80 * time.Millisecond)
	return f.Store.Read(ctx, t, key, l)
}

func (f far) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	time.Sleep(80 * time.Millisecond)
	defer time.Sleep(80 * time.Millisecond)
	return f.Store.Swap(ctx, t, key, old, next)
}

// As many processes as there are shards put buckets into the list of busy ones at once, and take them out again: each
// succeeds, since they do not swap in step.
func TestManyProcessesShareTheListOfBusyBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := far{memstore.New()}
		lists := [shard.Count]*busy{}
		for _, on := range []bool{true, false} {
			var work sync.WaitGroup
			for n := range lists {
				if on {
					lists[n] = &busy{regs: s}
				}
				work.Go(func() {
					for i := range 4 {
						if err := lists[n].set(t.Context(), store.BucketID{byte(n), byte(i)}, on); err != nil {
							t.Errorf("process %d, bucket %d, %v: %v", n, i, on, err)
						}
					}
				})
			}
			work.Wait()
		}
		ids, _, err := lists[0].read(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
	})
}
