package timestamps

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// wall is a wall clock that a test sets.
type wall struct{ t time.Time }

func (w *wall) now() time.Time { return w.t }

func next(t *testing.T, s *Source, n int) store.Timestamp {
	ts, err := s.Next(context.Background(), n)
	require.NoError(t, err)
	return ts
}

func TestFollowsTheWallClockForwardOnly(t *testing.T) {
	w := &wall{time.UnixMicro(1_000_000)}
	for _, s := range []*Source{New(w.now), Kept(memstore.New(), w.now)} {
		w.t = time.UnixMicro(1_000_000)
		require.EqualValues(t, 1_000_000, next(t, s, 1))
		require.EqualValues(t, 1_000_001, next(t, s, 3), "the clock stands still")
		w.t = time.UnixMicro(500)
		require.EqualValues(t, 1_000_004, next(t, s, 1), "the clock steps back")
		w.t = time.UnixMicro(2_000_000)
		require.EqualValues(t, 2_000_000, next(t, s, 1))
		w.t = w.t.Add(time.Hour)
		require.EqualValues(t, w.t.UnixMicro(), next(t, s, 1), "beyond what was reserved")
		require.EqualValues(t, w.t.UnixMicro()+1, next(t, s, 20_000_000), "more than is reserved at once")
	}
	require.Positive(t, next(t, New(func() time.Time { return time.Unix(-5, 0) }), 1))
}

func TestNeverRepeatsAcrossRestarts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	regs, w := memstore.New(), &wall{time.UnixMicro(1e15)}
	var last store.Timestamp
	for range 200 {
		s := Kept(regs, w.now)
		for range r.IntN(5) {
			n := 1 + r.IntN(1000)
			first := next(t, s, n)
			require.Greater(t, first, last)
			last = first + store.Timestamp(n) - 1
			w.t = w.t.Add(time.Duration(r.IntN(20)) * time.Second)
		}
		w.t = w.t.Add(-time.Duration(r.IntN(60)) * time.Second) // set back while it is down
	}
}

func TestReservesAheadAndNotMore(t *testing.T) {
	w := &wall{time.UnixMicro(1e15)}
	s, faults := faultstore.New(memstore.New(), faultstore.Options{})
	src := Kept(s, w.now)
	for range 100 { // ten seconds
		next(t, src, 1)
		w.t = w.t.Add(99 * time.Millisecond)
	}
	require.Equal(t, 1, faults.Counts(faultstore.Swap).Calls)
	w.t = w.t.Add(Ahead)
	next(t, src, 1)
	require.Equal(t, 2, faults.Counts(faultstore.Swap).Calls)
}

// TestTwoSourcesOverOneStore: also over one that loses answers, and applies
// swaps late, no two callers get the same timestamp.
func TestTwoSourcesOverOneStore(t *testing.T) {
	s, _ := faultstore.New(
		memstore.New(),
		faultstore.Options{Seed: seed.Number(t), MaxLate: 5, Rates: faultstore.Rates{Refuse: 0.1, Lose: 0.1, Late: 0.1}},
	)
	var mu sync.Mutex
	var all []store.Timestamp
	failed := 0
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			w := &wall{time.UnixMicro(1e15 + int64(g))}
			for range 20 { // restarts
				src := Kept(s, w.now)
				for range 20 {
					w.t = w.t.Add(7 * time.Second)
					ts, err := src.Next(context.Background(), 2)
					mu.Lock()
					if err != nil {
						failed++
						if k := store.KindOf(err); k != store.Unavailable && k != store.Timeout {
							t.Errorf("%v", err)
						}
					} else {
						all = append(all, ts, ts+1)
					}
					mu.Unlock()
				}
				w.t = w.t.Add(-100 * time.Second)
			}
		})
	}
	wg.Wait()
	given := len(all)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), given)
	require.Greater(t, given, 1000)
	t.Logf("%d given, %d failed", given, failed)
}

func TestDamagedCeilingIsRefused(t *testing.T) {
	regs := memstore.New()
	require.NoError(t, regs.Swap(context.Background(), store.Process, []byte(registerKey), store.Version{},
		store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}, Blob: []byte("garbage")}))
	_, err := Kept(regs, nil).Next(context.Background(), 1)
	require.ErrorIs(t, err, store.Corrupt)
}
