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

// servesBesideAHungNode stops one of three nodes, whose connections stay open, under puts, gets and listings. On average
// a request then takes at most the 250 ms longer after which a second attempt goes to another node. A share of the
// requests before would be no measure: their number depends on the processors, and that of waits does not. Some requests
// may fail: a node that answers may wait for the one that does not, as its replica, longer than a poll of a map clock
// may take. Without second attempts and a memory of who hangs almost none end while the node is stopped.
func servesBesideAHungNode(t *testing.T, n *cassandratest.Node, b *listing.Bucket) {
	t.Helper()
	const period, second = 4 * time.Second, 250 * time.Millisecond
	before, _, _ := sixWorkers(t, b, period)
	require.NoError(t, n.Pause())
	stopped, failed, slowest := sixWorkers(t, b, period)
	require.NoError(t, n.Resume())
	t.Logf("requests in %v: %d; with a node that hangs: %d, %d failed, the slowest took %v", period, before, stopped,
		failed, slowest)
	require.NotZero(t, before)
	require.Greater(t, stopped, int(workers*period/(workers*period/time.Duration(before)+second)))
}

const workers = 6

// sixWorkers sends requests for a while, and returns how many ended in it.
func sixWorkers(t *testing.T, b *listing.Bucket, period time.Duration) (ended, failed int, slowest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until := time.Now().Add(period)
	var mu sync.Mutex
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
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
	work.Wait()
	return ended, failed, slowest
}
