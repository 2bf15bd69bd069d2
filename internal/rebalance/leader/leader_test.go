package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// untilEnd is work that ends with its context.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestASecondOneIsToldWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		_, err := leader.Current(t.Context(), s, leader.Moves)
		require.ErrorIs(t, err, store.NotFound)
		a := leader.New(s, leader.Options{Name: "host-a:17", Admin: "http://10.0.0.1:9001"})
		b := leader.New(s, leader.Options{Name: "host-b:18"})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx, untilEnd, nil) }()
		time.Sleep(10 * leader.DefaultLease) // it renews
		held, leading := a.Leading()
		require.True(t, leading)

		err = b.Try(t.Context(), untilEnd)
		require.ErrorIs(t, err, store.Conflict)
		var other *leader.HeldError
		require.ErrorAs(t, err, &other)
		require.Equal(t, held.ID, other.Holder.ID)
		require.ErrorContains(t, err, "host-a:17")
		require.ErrorContains(t, err, "http://10.0.0.1:9001")
		_, leading = b.Leading()
		require.False(t, leading)
		now, err := leader.Current(t.Context(), s, leader.Moves)
		require.NoError(t, err)
		require.Equal(t, "host-a:17", now.Name)

		stop()
		require.ErrorIs(t, <-done, store.Timeout)
		_, err = leader.Current(t.Context(), s, leader.Moves)
		require.ErrorIs(t, err, store.NotFound, "it has given up the lease")
		ran := false
		require.NoError(t, b.Try(t.Context(), func(context.Context) error { ran = true; return nil }),
			"nobody has to wait")
		require.True(t, ran)
	})
}

// A leader that can't reach the store stops before another one begins, and leads
// again when it can.
func TestALeaderCutOffStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		cut := &cutOff{Store: mem}
		a := leader.New(cut, leader.Options{Name: "a"})
		b := leader.New(mem, leader.Options{Name: "b"})
		var w watch
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Run(ctx, w.work("a"), nil) })
		time.Sleep(leader.DefaultLease / 6) // its turn
		wg.Go(func() { _ = b.Run(ctx, w.work("b"), nil) })
		time.Sleep(time.Minute)
		require.Equal(t, "a", w.who())
		cut.set(true)
		time.Sleep(time.Minute)
		require.Equal(t, "b", w.who())
		cut.set(false)
		time.Sleep(time.Minute)
		require.Equal(t, "b", w.who(), "nobody is thrown out")
		stop()
		wg.Wait()
		require.Empty(t, w.overlaps)
		require.Equal(t, 2, w.terms)
	})
}

// A wall clock that jumps ahead ends a lease, as it may be the machine that slept.
func TestTheFirstOfBothClocksEndsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ahead time.Duration
		s := &cutOff{Store: memstore.New()}
		a := leader.New(s, leader.Options{Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		}})
		lost := make(chan error, 1)
		go func() { lost <- a.Try(t.Context(), untilEnd) }()
		synctest.Wait()
		s.set(true)
		mu.Lock()
		ahead = time.Hour
		mu.Unlock()
		before := time.Now()
		require.ErrorIs(t, <-lost, leader.ErrLost)
		require.Equal(t, leader.DefaultLease/20, time.Since(before), "it looks so often")
	})
}

func TestADeadHolderWithAClockAheadIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cutOff{Store: memstore.New()}
		mad := leader.New(s, leader.Options{Now: func() time.Time { return time.Now().Add(1000 * time.Hour) }})
		ctx, die := context.WithCancel(t.Context())
		dead := make(chan error)
		go func() { dead <- mad.Try(ctx, untilEnd) }()
		synctest.Wait()
		s.set(true) // it can't resign
		die()
		<-dead
		s.set(false)
		b := leader.New(s, leader.Options{})
		require.ErrorIs(t, b.Try(t.Context(), untilEnd), store.Conflict)
		ran := false
		require.NoError(t, b.Run(t.Context(), func(context.Context) error { ran = true; return nil }, nil))
		require.True(t, ran)
	})
}

func TestWorkThatFailsIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a := leader.New(s, leader.Options{})
		broken := errors.New("broken")
		require.ErrorIs(t, a.Run(t.Context(), func(context.Context) error { return broken }, nil), broken)
		_, err := leader.Current(t.Context(), s, leader.Moves)
		require.ErrorIs(t, err, store.NotFound)
	})
}

func TestADamagedRecordIsReported(t *testing.T) {
	s := memstore.New()
	require.NoError(t, s.Swap(t.Context(), store.Process, []byte("leader"), store.Version{},
		store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}, Blob: []byte("rubbish")}))
	require.ErrorIs(t, leader.New(s, leader.Options{}).Try(t.Context(), untilEnd), store.Corrupt)
}

// Candidates over a store that refuses, loses answers and applies swaps late, with
// wall clocks that differ within the bound: no two lead at once, and it goes on.
func TestNoTwoLeadAtOnce(t *testing.T) {
	seed := seed.Number(t)
	total := 0
	for round := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, round))
			mem := memstore.New()
			var w watch
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			faulty, faults := faultstore.New(mem, faultstore.Options{Seed: seed + round,
				Rates: faultstore.Rates{Refuse: 0.1, Lose: 0.2, Late: 0.1, Repeat: 0.1}, MaxLate: 5})
			var cuts []*cutOff
			for i := range 3 {
				off := time.Duration(r.IntN(1000)-500) * time.Millisecond
				cut := &cutOff{Store: faulty}
				cuts = append(cuts, cut)
				c := leader.New(cut, leader.Options{Name: fmt.Sprint(i),
					Now: func() time.Time { return time.Now().Add(off) }})
				wg.Go(func() {
					for ctx.Err() == nil {
						err := c.Run(ctx, func(ctx context.Context) error {
							_ = w.work(fmt.Sprint(i))(ctx)
							return context.Cause(ctx)
						}, nil)
						if store.KindOf(err) == store.Corrupt {
							t.Errorf("candidate %d: %v", i, err)
						}
					}
				})
			}
			for range 30 {
				time.Sleep(time.Duration(r.Int64N(int64(40 * time.Second))))
				cuts[r.IntN(len(cuts))].set(r.IntN(2) == 0)
			}
			for _, c := range cuts {
				c.set(false)
			}
			// At one moment nobody may: refusals and lost answers go on, and end leases.
			for end := time.Now().Add(3 * time.Minute); w.who() == "[]"; time.Sleep(time.Second) {
				require.True(t, time.Now().Before(end), "EVENKEEL_SEED=%d round %d: nobody leads", seed, round)
			}
			stop()
			wg.Wait()
			faults.Enable(false)
			require.Empty(t, w.overlaps, "EVENKEEL_SEED=%d round %d", seed, round)
			total += w.terms
		})
	}
	require.Greater(t, total, 80, "leadership has to change for this to prove anything")
}

// watch notes who works, and when two do.
type watch struct {
	mu       sync.Mutex
	working  []string
	overlaps []string
	terms    int
}

func (w *watch) work(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		w.mu.Lock()
		w.terms++
		if len(w.working) > 0 {
			w.overlaps = append(w.overlaps, fmt.Sprintf("%s beside %v at %s", name, w.working, time.Now()))
		}
		w.working = append(w.working, name)
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, n := range w.working {
			if n == name {
				w.working = append(w.working[:i], w.working[i+1:]...)
				break
			}
		}
		return context.Cause(ctx)
	}
}

func (w *watch) who() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.working) != 1 {
		return fmt.Sprint(w.working)
	}
	return w.working[0]
}

// cutOff is a store that can't be reached for a while.
type cutOff struct {
	store.Store
	mu  sync.Mutex
	off bool
}

func (c *cutOff) set(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func (c *cutOff) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return store.Errorf(store.Unavailable, "cut off")
	}
	return nil
}

func (c *cutOff) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if err := c.err(); err != nil {
		return store.Record{}, err
	}
	return c.Store.Read(ctx, t, key, l)
}

func (c *cutOff) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Store.Swap(ctx, t, key, old, next)
}
