package oncassandra

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// servesBesideAHungNode stops one of three nodes, whose connections stay open, under puts, gets and listings: those
// that succeed are a part of what they were before. Some may fail: a node that answers may wait for the one that does
// not, as its replica, longer than a poll of a map clock may take. Without second attempts and a memory of who
// hangs almost none end while the node is stopped.
func servesBesideAHungNode(t *testing.T, n *cassandratest.Node, b *listing.Bucket) {
	t.Helper()
	const period = 4 * time.Second
	before, _, _ := sixWorkers(t, b, period)
	require.NoError(t, n.Pause())
	stopped, failed, slowest := sixWorkers(t, b, period)
	require.NoError(t, n.Resume())
	t.Logf("requests in %v: %d; with a node that hangs: %d, %d failed, the slowest took %v", period, before, stopped,
		failed, slowest)
	require.Greater(t, stopped, before/10)
}

// sixWorkers sends requests for a while, and returns how many ended in it.
func sixWorkers(t *testing.T, b *listing.Bucket, period time.Duration) (ended, failed int, slowest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until := time.Now().Add(period)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for w := range 6 {
		workers.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				key := fmt.Appendf(nil, "%d/%03d", w, i%100)
				begun := time.Now()
				err := b.Put(ctx, key, key)
				if err == nil {
					_, err = b.Get(ctx, key)
				}
				if err == nil {
					_, err = b.List(ctx, listing.Query{Limit: 100})
				}
				mu.Lock()
				switch {
				case err != nil:
					failed++
					if k := store.KindOf(err); k != store.Timeout && k != store.Unavailable {
						t.Error(err)
					}
				case time.Now().Before(until):
					ended += 3
				}
				slowest = max(slowest, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return ended, failed, slowest
}
