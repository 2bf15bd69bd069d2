package scheduler_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// distant is a store of two data centres, the other one 80 ms away. It counts what is read of registers and nodes.
type distant struct {
	store.Store
	mu                   sync.Mutex
	near                 bool // nothing takes time
	serial, local, nodes int
}

func (s *distant) takes(n *int, d time.Duration) {
	s.mu.Lock()
	near := s.near
	*n++
	s.mu.Unlock()
	if !near {
		time.Sleep(d)
	}
}

func (s *distant) set(near bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.near, s.serial, s.local, s.nodes = near, 0, 0, 0
}

func (s *distant) counts() (serial, local, nodes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serial, s.local, s.nodes
}

func (s *distant) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if l == store.Serial {
		s.takes(&s.serial, 160*time.Millisecond)
	} else {
		s.takes(&s.local, 2*time.Millisecond)
	}
	return s.Store.Read(ctx, t, key, l)
}

// ScanNodes reads sixteen shards, one after the other.
func (s *distant) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) ([]store.NodeID, error) {
	s.takes(&s.nodes, 32*time.Millisecond)
	return s.Store.ScanNodes(ctx, b, after, limit)
}

// loseBusy makes the list of busy buckets unreadable.
func (f *fixture) loseBusy() {
	rec, err := f.s.Read(f.t.Context(), store.Busy, []byte("buckets"), store.Serial)
	require.NoError(f.t, err)
	require.NoError(f.t, f.s.Swap(f.t.Context(), store.Busy, []byte("buckets"), rec.Version,
		store.Record{Version: store.Version{Epoch: rec.Epoch + 1, Token: storekit.NewToken()}, Blob: []byte("lost")}))
}

// killed has a mover begin a move in each bucket, and killed in the middle. The list of busy buckets is lost.
func (f *fixture) killed() {
	g := scheduler.New(f.s, newLeased(f.t, mapclient.Of(f.c)), scheduler.Options{})
	end := runs(f.t, g)
	for _, id := range f.ids {
		f.ask(g, id, scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(20)}})
	}
	time.Sleep(4 * time.Second)
	end()
	f.loseBusy()
	require.Equal(f.t, len(f.ids), f.moving())
}

// moving is how many buckets have a batch in flight.
func (f *fixture) moving() (n int) {
	for _, id := range f.ids {
		root, err := mapclient.Of(f.c).Load(f.t.Context(), id)
		require.NoError(f.t, err)
		if len(root.Batches) > 0 {
			n++
		}
	}
	return n
}

// What a dead leader left is found within a minute among 25,000 buckets, though the list of busy ones is lost. Later
// scans of 100,000 take less than five minutes: they read what this data centre has, and an eighth at Serial. Here are
// fewer buckets, which have as much less time.
func TestScansStayInTheirDataCentre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, left = 5000, 5
		s := &distant{Store: memstore.New(), near: true}
		f := newFixture(t, s, left, 60)
		f.killed()
		for i := range buckets - left {
			_, err := mapclient.Of(f.c).Create(t.Context(), store.BucketID{1, 14: byte(i >> 8), 15: byte(i)}, nil)
			require.NoError(t, err)
		}
		s.set(false)
		g := scheduler.New(s, newLeased(t, mapclient.Of(f.c)), scheduler.Options{})
		end := runs(t, g)
		time.Sleep(time.Minute * buckets / 25_000)
		first := g.Status().Scan
		require.False(t, first.Ended.IsZero(), "%d of %d roots", first.Roots, buckets)
		require.Greater(t, first.Roots, buckets) // and the list of buckets
		require.GreaterOrEqual(t, first.Found, left)
		serial, local, nodes := s.counts()
		t.Logf("first: %v; %d reads at Serial, %d others, of nodes %d", first.Ended.Sub(first.Began), serial, local, nodes)
		require.Less(t, serial, buckets/20, "those of the moves")
		require.Less(t, nodes, 100)
		time.Sleep(time.Minute)
		require.Zero(t, f.moving())

		s.set(false)
		time.Sleep(12 * time.Minute)
		second := g.Status().Scan
		serial, local, nodes = s.counts()
		t.Logf("second: %v; %d reads at Serial, %d others, of nodes %d", second.Ended.Sub(second.Began), serial, local, nodes)
		require.True(t, second.Began.After(first.Ended) && second.Ended.After(second.Began))
		require.Less(t, second.Ended.Sub(second.Began), 5*time.Minute*buckets/100_000)
		require.Less(t, serial, buckets/6)
		require.Less(t, nodes, buckets/6)
		end()
	})
}

// old is the maps of a data centre that does not hear of the newest roots.
type old struct {
	scheduler.Maps
	roots map[store.BucketID]*partmap.Root
}

func (m old) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	if r := m.roots[id]; r != nil {
		return r, nil
	}
	return m.Maps.Look(ctx, id)
}

// A batch that this data centre has not heard of, and nodes that no swap named, are found by one of eight scans.
func TestScansProveEachRootNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := newFixture(t, s, 8, 60)
		m := old{mapclient.Of(f.c), map[store.BucketID]*partmap.Root{}}
		for _, id := range f.ids {
			root, err := mapclient.Of(f.c).Load(t.Context(), id)
			require.NoError(t, err)
			m.roots[id] = root
		}
		f.killed()
		other := store.BucketID{5}
		_, err := mapclient.Of(f.c).Create(t.Context(), other, nil)
		require.NoError(t, err)
		entries := []partmap.Entry{{Partition: store.PartitionID{1}}}
		for i := range 200 { // they do not fit into a root
			entries = append(entries, partmap.Entry{Start: key(i), Partition: store.PartitionID{1, byte(i)}})
		}
		larger, err := partmap.New(other, 0, entries, mapclient.Of(f.c).Stamp())
		require.NoError(t, err)
		require.NotEmpty(t, larger.Nodes)
		for _, n := range larger.Nodes {
			require.NoError(t, s.WriteNode(t.Context(), other, n.ID, n.Blob))
		}
		end := runs(t, scheduler.New(s, m, scheduler.Options{}))
		time.Sleep(8 * (10*time.Minute + 10*time.Second))
		require.Zero(t, f.moving())
		time.Sleep(time.Hour)
		left, err := s.ScanNodes(t.Context(), other, store.NodeID{}, 10)
		require.NoError(t, err)
		require.Empty(t, left)
		end()
	})
}
