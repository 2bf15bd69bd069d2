package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// severed is a store that a dead process does not reach any more.
type severed struct {
	memstore.Store
	mu   sync.Mutex
	dead bool
}

func (s *severed) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return store.Errorf(store.Unavailable, "it is dead")
	}
	return s.Store.Swap(ctx, t, key, old, next)
}

// Two processes move the buckets of the shards that each leads, a bucket is moved by one only, and when one dies the
// other one takes its share.
func TestTwoProcessesShareTheMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, maxRows = 40, 100
		s := memstore.New()
		counts := countbook.NewMemory(nil)
		rec := counter.NewRecorder(counts, counter.RecorderOptions{Every: 10 * time.Second})
		c, err := listing.New(s, listing.Options{Recorder: rec, Sizes: counts})
		require.NoError(t, err)
		var work sync.WaitGroup
		var end []func()
		begin := func(name string) (*engine.Rebalancer, *severed) {
			own := &severed{Store: s}
			p, err := processes.Appear(t.Context(), s, processes.Process{Name: name}, nil)
			require.NoError(t, err)
			balance := balancer.For(maxRows, 0, 10*time.Second, engine.EmbeddedWait)
			r := engine.New(engine.Options{
				Store: own, Buckets: c, Balance: &balance, Counts: counts, Presence: p,
				Leader: &engine.Candidate{Name: name, Admin: "http://" + name},
			})
			ctx, stop := context.WithCancel(context.Background())
			work.Go(func() { _ = r.Run(ctx); p.Close() })
			end = append(end, stop)
			return r, own
		}
		defer func() {
			for _, stop := range end {
				stop()
			}
			work.Wait()
			_ = rec.Close(context.Background())
			mapclient.Of(c).Close()
		}()
		a, _ := begin("a")
		time.Sleep(10 * time.Second)
		require.Equal(t, shard.All.List(), a.Led(), "one process alone leads all")
		b, ofB := begin("b")
		time.Sleep(10 * time.Minute)
		require.Len(t, a.Led(), shard.Count/2)
		require.Len(t, b.Led(), shard.Count/2)

		var ids []store.BucketID
		for i := range buckets {
			name := fmt.Sprintf("bucket-%02d", i)
			require.NoError(t, c.CreateBucket(t.Context(), name))
			id, err := c.BucketID(t.Context(), name)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		fill := func(letter string) {
			for i := range buckets {
				for row := range 3 * maxRows {
					key := fmt.Appendf(nil, "%s%04d", letter, row)
					require.NoError(t, c.Bucket(fmt.Sprintf("bucket-%02d", i)).Put(t.Context(), key, []byte("v")))
				}
			}
			time.Sleep(10 * time.Minute)
		}
		ranges := func(id store.BucketID) int {
			root, err := mapclient.Of(c).Load(t.Context(), id)
			require.NoError(t, err)
			return int(root.Ranges)
		}
		fill("a")
		by := map[store.BucketID]string{}
		for name, r := range map[string]*engine.Rebalancer{"a": a, "b": b} {
			jobs := r.Status().Jobs
			require.NotEmpty(t, jobs, "%s moves", name)
			for _, j := range jobs {
				require.Contains(t, r.Led(), shard.Of(j.Bucket), "%s moves what it leads", name)
				require.Contains(t, []string{"", name}, by[j.Bucket])
				by[j.Bucket] = name
			}
		}
		before := map[store.BucketID]int{}
		for _, id := range ids {
			before[id] = ranges(id)
			require.Greater(t, before[id], 1)
			var other *engine.NotLeading
			if slices.Contains(a.Led(), shard.Of(id)) {
				require.NoError(t, a.Ready(t.Context(), id))
				require.ErrorAs(t, b.Ready(t.Context(), id), &other)
				require.Equal(t, "http://a", other.Leader.Admin)
			}
		}

		ofB.mu.Lock()
		ofB.dead = true
		ofB.mu.Unlock()
		time.Sleep(10 * time.Minute)
		require.Empty(t, b.Led())
		require.Equal(t, shard.All.List(), a.Led())
		fill("b")
		for _, id := range ids {
			require.Greater(t, ranges(id), before[id])
		}
	})
}
