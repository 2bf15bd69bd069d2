package countertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/store"
)

// kept checks that a backend that has lost all counts gets back the sizes of partitions from copies that are kept
// elsewhere. These sizes hold until the next recount. Writes after the loss are added to them.
func (s *suite) kept() {
	k := &keeper{sizes: map[store.Partition]store.PartitionSize{}}
	errs := 0
	open := func() counter.Backend {
		return countbook.Keep(s.b, k, countbook.KeepOptions{Step: 100, Now: s.clock.Now, Failed: func(error) { errs++ }})
	}
	b := open()
	stats := func(p store.Partition) counter.Stats {
		s.Helper()
		all, err := b.Stats(s.Context(), []store.Partition{partition(), p, partition()})
		require.NoError(s, err)
		require.Len(s, all, 3)
		require.Equal(s, p, all[1].Partition)
		require.False(s, all[0].Known || all[2].Known)
		return all[1]
	}
	p := partition()
	counted := s.clock.Now()
	require.NoError(s, b.Correct(s.Context(), p, &counter.Count{
		Started: counted, Start: []byte("a"), End: []byte("n"), Rows: 1000, Bytes: 50_000, Markers: 3, Top: []byte("k"),
	}))
	require.Equal(s, 1, k.writes)
	s.clock.Go(time.Minute)
	r := s.recorder()
	put := func(what string, n int) {
		for i := range n {
			r.Put(p, fmt.Appendf(nil, "%s %d", what, i), 50, s.now())
		}
		s.flush(r)
	}
	put("before", 99)
	require.EqualValues(s, 1099, stats(p).Rows)
	require.Equal(s, 1, k.writes, "less than a step")
	put("also before", 51)
	require.EqualValues(s, 1150, stats(p).Rows)
	require.Equal(s, 2, k.writes)
	require.EqualValues(s, 1150, stats(p).Rows)
	require.Equal(s, 2, k.writes, "nothing has changed")

	s.clock.Go(time.Hour)
	s.env.Lose(s.T)
	if !s.env.Shared {
		s.open()
		r = s.recorder()
	}
	b = open() // as another process would
	put("new", 20)
	st := stats(p)
	require.True(s, st.Known)
	require.EqualValues(s, 1170, st.Rows)
	require.EqualValues(s, 3, st.Markers)
	require.InDelta(s, 50_000*1.15+20*60, st.Bytes, 2000)
	require.WithinDuration(s, counted, st.Recounted, 0, "it is confirmed when its last recount is old")
	require.True(s, st.Covers([]byte("a"), []byte("n")))
	require.False(s, st.Covers([]byte("a"), []byte("m")))
	for i := range 90 {
		r.Delete(p, fmt.Appendf(nil, "old %d", i), s.now(), false)
	}
	s.flush(r)
	require.EqualValues(s, 1080, stats(p).Rows)
	require.Equal(s, 2, k.writes)

	// A recount since the loss is not replaced by a kept size.
	require.NoError(s, s.b.Correct(s.Context(), p, &counter.Count{Started: s.clock.Now(), Rows: 7}))
	require.EqualValues(s, 7, stats(p).Rows)
	require.Equal(s, 3, k.writes)
	require.NoError(s, s.b.Forget(s.Context(), p))
	b = open()
	require.EqualValues(s, 7, stats(p).Rows)
	require.NoError(s, b.Forget(s.Context(), p))
	require.Empty(s, k.sizes)
	require.False(s, stats(p).Known)

	// A recount replaces a size that was kept during the recount.
	q := partition()
	require.NoError(s, b.Correct(s.Context(), q, &counter.Count{Started: s.clock.Now(), Rows: 1000}))
	s.clock.Go(time.Minute)
	for i := range 500 {
		r.Put(q, fmt.Appendf(nil, "again %d", i), 50, s.now())
	}
	s.flush(r)
	s.clock.Go(time.Minute)
	began := s.clock.Now()
	s.clock.Go(time.Minute)
	require.EqualValues(s, 1500, stats(q).Rows)
	s.clock.Go(time.Minute)
	require.NoError(s, b.Correct(s.Context(), q, &counter.Count{Started: began, Took: 2 * time.Minute, Rows: 700}))
	require.EqualValues(s, 700, stats(q).Rows)
	s.env.Lose(s.T)
	if !s.env.Shared {
		s.open()
		r = s.recorder()
	}
	b = open()
	require.EqualValues(s, 700, stats(q).Rows)
	require.NoError(s, b.Forget(s.Context(), q))

	// An error of the keeper, or a damaged size, fails no other call.
	require.Zero(s, errs)
	k.sizes[p] = store.PartitionSize{Partition: p, Encoded: []byte{1, 2}, At: s.clock.Now()}
	require.False(s, stats(p).Known)
	require.Equal(s, 1, errs)
	k.failure = errors.New("away")
	require.NoError(s, b.Correct(s.Context(), p, &counter.Count{Started: s.clock.Now(), Rows: 8}))
	require.EqualValues(s, 8, stats(p).Rows)
	require.NoError(s, b.Forget(s.Context(), p))
	require.False(s, stats(p).Known)
	require.Greater(s, errs, 3)
}

// keeper is a countbook.Keeper for tests: it keeps the sizes of partitions in memory, and counts the writes of sizes. If
// failure is not nil, its methods return this error.
type keeper struct {
	mu      sync.Mutex
	sizes   map[store.Partition]store.PartitionSize
	writes  int
	failure error
}

func (k *keeper) KeepSize(_ context.Context, s store.PartitionSize) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure == nil {
		if !s.At.Before(k.sizes[s.Partition].At) { // of two sizes the newer one stays
			k.sizes[s.Partition] = s
		}
		k.writes++
	}
	return k.failure
}

func (k *keeper) KeptSize(_ context.Context, p store.Partition) (store.PartitionSize, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sizes[p], k.failure
}

func (k *keeper) ForgetSize(_ context.Context, p store.Partition) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure == nil {
		delete(k.sizes, p)
	}
	return k.failure
}
