package scheduler_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// apart is a store of two data centres 80 ms apart, of which each call takes as long as with Cassandra and Paxos v2.
type apart struct{ distant }

const (
	inDataCentre  = 2 * time.Millisecond
	eachTakes     = 160 * time.Millisecond
	swapTakes     = 330 * time.Millisecond
	inTheOtherOne = 80*time.Millisecond + inDataCentre
)

func (s *apart) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	time.Sleep(swapTakes)
	return s.distant.Swap(ctx, t, key, old, next)
}

func (s *apart) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	r, err := s.Read(ctx, t, key, store.Serial)
	time.Sleep(inDataCentre + inTheOtherOne)
	return r, err
}

func (s *apart) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	time.Sleep(eachTakes)
	return s.distant.WriteNode(ctx, b, id, blob)
}

func (s *apart) EachQuorum() store.Rows { return each{s.distant.Store} }

// each is rows at EACH_QUORUM.
type each struct{ store.Rows }

func (e each) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	time.Sleep(eachTakes)
	return e.Rows.Get(ctx, p, key)
}

func (e each) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	time.Sleep(eachTakes)
	return e.Rows.Slice(ctx, p, b, o)
}

func (e each) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	time.Sleep(eachTakes)
	return e.Rows.Put(ctx, p, rows...)
}

func (e each) Delete(ctx context.Context, p store.Partition, key []byte, at store.Timestamp) error {
	time.Sleep(eachTakes)
	return e.Rows.Delete(ctx, p, key, at)
}

func (e each) Remove(ctx context.Context, p store.Partition, b store.Bounds, at store.Timestamp) error {
	time.Sleep(eachTakes)
	return e.Rows.Remove(ctx, p, b, at)
}

// newApart makes a store and its map client, and buckets that have their rows in one range.
func newApart(t *testing.T, buckets, rows int) (*apart, *mapclient.Client, []store.BucketID) {
	s := &apart{distant{Store: memstore.New()}}
	require.NoError(t, mapclient.InitClocks(t.Context(), s, mapclient.DefaultClocks))
	c, err := mapclient.NewNetwork(s, mapclient.Options{})
	require.NoError(t, err)
	var ids []store.BucketID
	for i := range buckets {
		id := store.BucketID{byte(i), 15: byte(i)}
		root, err := c.Create(t.Context(), id, nil)
		require.NoError(t, err)
		var all []store.Row
		for k := range rows {
			all = append(all, store.Row{Key: key(k), Value: store.EntryCell([]byte("value")), Timestamp: 1})
		}
		for rg, err := range c.Ranges(t.Context(), root, nil) {
			require.NoError(t, err)
			for batch := range slices.Chunk(all, 500) {
				require.NoError(t, s.Put(t.Context(), store.Partition{Bucket: id, ID: rg.Partition}, batch...))
			}
		}
		ids = append(ids, id)
	}
	return s, c, ids
}

// A hundred buckets with one split each end in little more than the time of one: those that wait for leases hold up no
// others.
func TestAHundredBucketsSplitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, ids := newApart(t, 101, 100)
		defer c.Close()
		g := scheduler.New(s, c, scheduler.Options{RowsPerSecond: 20_000})
		end := runs(t, g)
		time.Sleep(time.Minute)
		split := func(ids ...store.BucketID) time.Duration {
			began := time.Now()
			var jobs []string
			for _, id := range ids {
				jobs = append(jobs, g.Submit(id, "split", &scheduler.Plan{
					Bucket: id, Moves: []move.Goal{move.Split(nil, nil, 0, key(50))},
				}).ID)
			}
			for _, id := range jobs {
				for {
					j, ok := g.Job(id)
					require.True(t, ok)
					if !j.Ended.IsZero() {
						require.NoError(t, j.Err())
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			return time.Since(began)
		}
		one, hundred := split(ids[0]), split(ids[1:]...)
		t.Logf("one: %v, a hundred: %v", one, hundred)
		require.Less(t, hundred, 3*one)
		end()
	})
}

// What a split of 5,000 rows takes, step by step (bench/results/apart.md has the table); and that looks between the
// steps go to the other data centre only after waits.
func TestWhatASplitTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, ids := newApart(t, 1, 5000)
		defer c.Close()
		var mu sync.Mutex
		began := time.Now()
		g := scheduler.New(s, c, scheduler.Options{RowsPerSecond: 20_000, Executor: executor.Options{
			Failpoint: func(_ context.Context, point, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(point, "before ") || strings.HasPrefix(point, "after ") {
					t.Logf("%6.2f s %s", time.Since(began).Seconds(), point)
				}
				return nil
			},
		}})
		end := runs(t, g)
		time.Sleep(time.Minute)
		began = time.Now()
		s.set(false)
		j := g.Submit(ids[0], "split", &scheduler.Plan{
			Bucket: ids[0], Moves: []move.Goal{move.Split(nil, nil, 0, key(2500))},
		})
		for j.Ended.IsZero() {
			time.Sleep(10 * time.Millisecond)
			j, _ = g.Job(j.ID)
		}
		require.NoError(t, j.Err())
		took := time.Since(began)
		serial, _, _ := s.counts()
		t.Logf("%6.2f s the split has ended; %d reads at Serial", took.Seconds(), serial)
		require.Less(t, took, 28500*time.Millisecond)
		require.Less(t, serial, 40)
		time.Sleep(time.Minute)
		end()
	})
}
