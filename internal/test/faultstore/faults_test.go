package faultstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// counting counts the puts and swaps that reach a memstore.
type counting struct {
	memstore.Store
	mu          sync.Mutex
	puts, swaps int
}

func newCounting() *counting { return &counting{Store: memstore.New()} }

func (c *counting) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	c.mu.Lock()
	c.puts++
	c.mu.Unlock()
	return c.Store.Put(ctx, p, rows...)
}

func (c *counting) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	c.mu.Lock()
	c.swaps++
	c.mu.Unlock()
	return c.Store.Swap(ctx, t, key, old, next)
}

func partition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

func requireValue(t *testing.T, s store.Store, p store.Partition, key, want string) {
	t.Helper()
	got, found, err := s.Get(t.Context(), p, []byte(key))
	require.NoError(t, err)
	require.Equal(t, want != "", found)
	require.Equal(t, want, string(got.Value))
}

func requireInjected(t *testing.T, err error, kinds ...store.Kind) {
	t.Helper()
	require.ErrorIs(t, err, faultstore.ErrInjected)
	require.Contains(t, kinds, store.KindOf(err))
	require.True(t, store.OutcomeUnknown(err))
}

func TestRefusedWritesAreNotDone(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Refuse: 1, Repeat: 1}})
	requireInjected(t, s.Put(t.Context(), p, row("k", "v", 1)), store.Unavailable)
	_, _, err := s.Get(t.Context(), p, []byte("k"))
	requireInjected(t, err, store.Unavailable)
	require.NoError(t, f.Flush(t.Context()))
	requireValue(t, inner, p, "k", "")
	require.Zero(t, inner.puts)
	require.Equal(t, faultstore.Counts{Calls: 2, Refused: 2}, f.Counts())
	require.Equal(t, faultstore.Counts{Calls: 1, Refused: 1}, f.Counts(faultstore.Put))
}

func TestLostAnswersAreOfWritesDone(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Lose: 1}})
	for i := range 20 {
		requireInjected(t, s.Put(t.Context(), p, row("k", fmt.Sprint(i), store.Timestamp(i+1))), store.Timeout,
			store.Unavailable)
		requireValue(t, inner, p, "k", fmt.Sprint(i))
	}
	_, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 1})
	requireInjected(t, err, store.Timeout, store.Unavailable)

	key := []byte("clock")
	next := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}}
	swap := func() error { return s.Swap(t.Context(), store.Clocks, key, store.Version{}, next) }
	requireInjected(t, swap(), store.Timeout, store.Unavailable)
	requireInjected(t, swap(), store.Timeout, store.Unavailable) // a conflict, unheard
	got, err := inner.Read(t.Context(), store.Clocks, key, store.Serial)
	require.NoError(t, err)
	require.Equal(t, next.Version, got.Version)
	require.Equal(t, 23, f.Counts().Lost)

	err = s.Put(t.Context(), p, row("", "v", 1))
	require.Equal(t, store.InvalidArgument, store.KindOf(err), "nothing was done: the caller may know")
}

func TestLateWritesLandAfterLaterOnes(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{
		MaxLate: 5,
		PerOp:   map[faultstore.Op]faultstore.Rates{faultstore.Put: {Late: 1}},
	})
	given := row("k", "late", 1)
	requireInjected(t, s.Put(t.Context(), p, given), store.Timeout, store.Unavailable)
	clear(given.Value) // what is kept for later is not the caller's memory
	clear(given.Key)
	requireValue(t, inner, p, "k", "")
	require.Equal(t, 1, f.Pending())
	for range 6 {
		_, _, err := s.Get(t.Context(), p, []byte("k"))
		require.NoError(t, err)
	}
	requireValue(t, inner, p, "k", "late")
	require.Zero(t, f.Pending())

	requireInjected(t, s.Put(t.Context(), p, row("k", "later", 2)), store.Timeout, store.Unavailable)
	require.NoError(t, s.Delete(t.Context(), p, []byte("k"), 3))
	require.NoError(t, f.Flush(t.Context()))
	requireValue(t, inner, p, "k", "")
	require.Equal(t, faultstore.Counts{Calls: 2, Late: 2, Landed: 2}, f.Counts(faultstore.Put))
}

func TestLateSwapsApplyOnlyToTheirVersion(t *testing.T) {
	inner, key := newCounting(), []byte("clock")
	s, f := faultstore.New(inner, faultstore.Options{
		MaxLate: 1000,
		Rates:   faultstore.Rates{Late: 1},
	})
	v := func(epoch uint64) store.Record {
		return store.Record{Version: store.Version{Epoch: epoch, Token: storekit.NewToken()}}
	}
	read := func() store.Version {
		got, err := s.Read(t.Context(), store.Clocks, key, store.Serial)
		if err != nil {
			require.ErrorIs(t, err, store.NotFound)
		}
		return got.Version
	}
	first := v(1)
	requireInjected(t, s.Swap(t.Context(), store.Clocks, key, store.Version{}, first), store.Timeout, store.Unavailable)
	require.Equal(t, store.Version{}, read(), "not seen at first")
	require.NoError(t, f.Flush(t.Context()))
	require.Equal(t, first.Version, read(), "seen later")

	second, rival := v(2), v(2)
	requireInjected(t, s.Swap(t.Context(), store.Clocks, key, first.Version, second), store.Timeout, store.Unavailable)
	f.Enable(false)
	require.NoError(t, s.Swap(t.Context(), store.Clocks, key, first.Version, rival))
	require.NoError(t, f.Flush(t.Context()), "a conflict is an outcome")
	require.Equal(t, rival.Version, read())
	require.Equal(t, 3, inner.swaps)
}

func TestRepeatedWritesAreDoneTwice(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Repeat: 1}})
	require.NoError(t, s.Put(t.Context(), p, row("k", "v", 5)))
	require.NoError(t, s.Delete(t.Context(), p, []byte("k"), 5))
	require.NoError(t, s.Remove(t.Context(), p, store.Bounds{}, 4))
	require.NoError(t, f.Flush(t.Context()))
	requireValue(t, inner, p, "k", "")
	require.Equal(t, 2, inner.puts)
	require.Equal(t, 3, f.Counts().Repeated)
	require.Equal(t, 3, f.Counts().Landed)
}

func TestShortPagesSaySo(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Short: 1}})
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("%02d", i))
		require.NoError(t, s.Put(t.Context(), p, row(all[i], "v", 1)))
		require.NoError(t, s.WriteNode(t.Context(), p.Bucket, store.NodeID(uuid.New()), []byte("n")))
	}
	var got []string
	for b := (store.Bounds{StartExclusive: true}); ; {
		page, err := s.Slice(t.Context(), p, b, store.SliceOptions{Limit: 10})
		require.NoError(t, err)
		require.NotEmpty(t, page.Rows)
		require.True(t, len(page.Rows) < 10)
		for _, r := range page.Rows {
			got = append(got, string(r.Key))
		}
		if !page.More {
			break
		}
		b.Start = page.Rows[len(page.Rows)-1].Key
	}
	require.Equal(t, all, got)
	ids, err := s.ScanNodes(t.Context(), p.Bucket, store.NodeID{}, 100)
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	require.Less(t, len(ids), 20)
	require.Positive(t, f.Counts(faultstore.Slice).Short)
	require.Equal(t, 1, f.Counts(faultstore.ScanNodes).Short)
}

func TestSwitchedOffThereAreNoFaults(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Lose: 1, Short: 1, Repeat: 1}})
	f.Enable(false)
	require.NoError(t, s.Put(t.Context(), p, row("k", "v", 1), row("l", "v", 1)))
	page, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
	f.Enable(true)
	require.Error(t, s.Put(t.Context(), p, row("k", "v", 1)))
}

// A node has no timestamp: only the order of its writes keeps it deleted.
func TestDeletedNodesDoNotComeBack(t *testing.T) {
	for seed := range uint64(50) {
		inner, b, id := newCounting(), store.BucketID(uuid.New()), store.NodeID(uuid.New())
		s, f := faultstore.New(inner, faultstore.Options{
			Seed:  seed,
			PerOp: map[faultstore.Op]faultstore.Rates{faultstore.WriteNode: {Late: 1}},
		})
		requireInjected(t, s.WriteNode(t.Context(), b, id, []byte("n")), store.Timeout, store.Unavailable)
		require.NoError(t, s.DeleteNode(t.Context(), b, id))
		require.NoError(t, f.Flush(t.Context()))
		_, err := s.Node(t.Context(), b, id)
		require.ErrorIs(t, err, store.NotFound, "seed %d", seed)
	}
}

func TestClosingDropsWhatIsPending(t *testing.T) {
	inner, p := newCounting(), partition()
	s, f := faultstore.New(inner, faultstore.Options{Rates: faultstore.Rates{Late: 1}})
	require.Error(t, s.Put(t.Context(), p, row("k", "v", 1)))
	require.NoError(t, s.Close())
	require.NoError(t, f.Flush(t.Context()))
	require.Zero(t, inner.puts)
	require.Equal(t, store.Unavailable, store.KindOf(s.Put(t.Context(), p, row("k", "v", 1))))
}

// Delays run on the clock of the bubble, so an hour of them takes no time.
func TestDelaysEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, p := newCounting(), partition()
		s, f := faultstore.New(inner, faultstore.Options{
			Seed:     3,
			Rates:    faultstore.Rates{Delay: 1},
			Sleep:    wait.Sleep,
			MaxDelay: time.Hour,
		})
		begun := time.Now()
		require.NoError(t, s.Put(t.Context(), p, row("k", "v", 1)))
		require.Positive(t, time.Since(begun))
		require.LessOrEqual(t, time.Since(begun), time.Hour)

		const writes = 100
		for i := range writes {
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			err := s.Put(ctx, p, row(fmt.Sprint(i), "v", 1))
			cancel()
			require.Equal(t, store.Timeout, store.KindOf(err))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, f.Flush(t.Context()))
		// Half were delayed after they were done; of the others, half never are.
		c := f.Counts()
		require.Equal(t, 1+writes, c.Delayed)
		require.Positive(t, c.Late)
		require.Equal(t, c.Late, c.Landed)
		require.Greater(t, inner.puts, 1+c.Late)
		require.Less(t, inner.puts, 1+writes)
		page, err := inner.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 2 * writes})
		require.NoError(t, err)
		require.Len(t, page.Rows, inner.puts, "the end of a call's context must not stop what it left behind")
	})
}
