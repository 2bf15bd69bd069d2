package wait_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/wait"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, wait.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, wait.Sleep(t.Context(), 0))
		require.NoError(t, wait.Sleep(t.Context(), -time.Hour))

		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		require.ErrorIs(t, wait.Sleep(ctx, time.Minute), stop)
		require.ErrorIs(t, wait.Sleep(ctx, time.Minute), stop, "it had ended before")
		require.ErrorIs(t, wait.Sleep(ctx, 0), stop)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}

func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r wait.Rounds[[]int]
		var calls [][]int
		failed := errors.New("of the second")
		join := func(n int) *wait.Round[[]int] {
			return r.Join(func(of *[]int) { *of = append(*of, n) }, func(work func()) bool {
				go work()
				return true
			}, func(of *[]int) error {
				calls = append(calls, *of)
				time.Sleep(time.Second)
				if len(calls) == 2 {
					return failed
				}
				return nil
			})
		}
		first := join(1)
		synctest.Wait() // its call is under way
		second := join(2)
		require.Same(t, second, join(3), "both wait for the next call")
		<-first.Done
		require.NoError(t, first.Err)
		<-second.Done
		require.ErrorIs(t, second.Err, failed)
		synctest.Wait()
		third := join(4) // after a rest
		<-third.Done
		require.NoError(t, third.Err)
		require.Equal(t, [][]int{{1}, {2, 3}, {4}}, calls)

		refused := func(func()) bool { return false }
		require.Nil(t, r.Join(func(*[]int) {}, refused, nil))
		last := join(5)
		<-last.Done
		require.Equal(t, []int{5}, calls[3], "what was refused is forgotten")
		synctest.Wait()
	})
}

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	b := wait.Backoff{First: 5 * ms, Most: 30 * ms}
	for failures, pause := range []time.Duration{5 * ms, 5 * ms, 10 * ms, 20 * ms, 30 * ms, 30 * ms} {
		require.Equal(t, pause, b.Pause(failures), "%d", failures)
	}
	require.Equal(t, 30*ms, b.Pause(1_000_000), "no overflow")
	drawn := 0.0
	b.Jitter, b.Rand = 0.5, func() float64 { return drawn }
	require.Equal(t, 20*ms, b.Pause(3))
	drawn = 0.5
	require.Equal(t, 15*ms, b.Pause(3))
	b.Jitter, drawn = 1, 1
	require.Zero(t, b.Pause(3))
	b.Rand = nil
	different := map[time.Duration]bool{}
	for range 50 {
		p := b.Pause(9)
		require.True(t, p >= 0 && p <= 30*ms, "%v", p)
		different[p] = true
	}
	require.Greater(t, len(different), 10)

	synctest.Test(t, func(t *testing.T) {
		began, b := time.Now(), wait.Backoff{First: time.Second, Most: time.Minute}
		require.NoError(t, b.Sleep(t.Context(), 4))
		require.Equal(t, 8*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Sleep(ctx, 4), context.DeadlineExceeded)
	})
}

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := wait.NewPacer(10), time.Now()
		took := func(n int) time.Duration {
			require.NoError(t, p.Take(t.Context(), n))
			return time.Since(began)
		}
		require.Equal(t, 10, p.Rate())
		require.Equal(t, time.Duration(0), took(5), "the first are not waited for")
		require.Equal(t, 500*time.Millisecond, took(20))
		p.Return(10) // so ten of the twenty are paid for
		require.Equal(t, 1500*time.Millisecond, took(10))
		time.Sleep(10 * time.Second) // time that nobody used is not saved up
		require.Equal(t, 11500*time.Millisecond, took(10))
		require.Equal(t, 12500*time.Millisecond, took(100))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, p.Take(ctx, 1), context.DeadlineExceeded)
		require.Equal(t, 13500*time.Millisecond, time.Since(began))
		cancel()
		p.SetRate(1)
		require.Equal(t, 1, p.Rate())
		p.SetRate(0)
		require.Zero(t, p.Rate())
		p.Return(7)
		require.Equal(t, 13500*time.Millisecond, took(1_000_000), "no limit")
		require.ErrorIs(t, p.Take(ctx, 1), context.DeadlineExceeded)
		p.SetRate(10)
		require.Equal(t, 13500*time.Millisecond, took(1), "what was taken before is forgiven")
		p.SetRate(-1)
		require.Equal(t, 13500*time.Millisecond, took(1))

		p.SetRate(1)
		require.Equal(t, 13500*time.Millisecond, took(3))
		p.Return(1)
		require.Equal(t, 15500*time.Millisecond, took(1), "one row per second is a limit, too")
	})
}

func TestInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The machine's clocks run for one minute, another wall clock for three, another
		// monotonic one for five.
		wall, mono := time.Unix(1000, 0), time.Hour
		otherWall, otherMono := func() time.Time { return wall }, func() time.Duration { return mono }
		for name, c := range map[string]struct {
			now         func() wait.Instant
			least, most time.Duration
		}{
			"the machine's clocks":    {wait.Instants(nil, nil), time.Minute, time.Minute},
			"another wall clock":      {wait.Instants(otherWall, nil), time.Minute, 3 * time.Minute},
			"another monotonic clock": {wait.Instants(nil, otherMono), time.Minute, 5 * time.Minute},
			"two others":              {wait.Instants(otherWall, otherMono), 3 * time.Minute, 5 * time.Minute},
		} {
			begin := c.now()
			time.Sleep(time.Minute)
			wall, mono = wall.Add(3*time.Minute), mono+5*time.Minute
			least, most := c.now().Since(begin)
			require.Equal(t, []time.Duration{c.least, c.most}, []time.Duration{least, most}, name)
			require.WithinRange(t, wait.Instants(nil, nil)().Wall, time.Now(), time.Now())
		}
		for name, c := range map[string]struct {
			mono        time.Duration
			wall        int64
			least, most time.Duration
		}{
			"suspended": {1, 9, 1, 9}, "set back": {9, 1, 1, 9}, "set back before the beginning": {9, -9, -9, 9},
		} {
			least, most := wait.Instant{Mono: c.mono, Wall: time.Unix(5, c.wall)}.Since(wait.Instant{Wall: time.Unix(5,
				0)})
			require.Equal(t, []time.Duration{c.least, c.most}, []time.Duration{least, most}, name)
		}
	})
	// The wall clock has no monotonic part, or a step would not show.
	require.NotContains(t, wait.Instants(nil, nil)().Wall.String(), "m=")
	require.NotContains(t, wait.Instants(time.Now, nil)().Wall.String(), "m=")
}

// TestEvery: calls come at the interval; stop waits for a call under way, and none follows.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		stop := wait.Every(time.Second, func() { time.Sleep(500 * time.Millisecond); calls++ })
		time.Sleep(3200 * time.Millisecond)
		stop()
		require.Equal(t, 3, calls)
		time.Sleep(time.Minute)
		require.Equal(t, 3, calls)
	})
}

// TestTogether: what comes during a call is in the next one, whose context ends with the last of its callers.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all wait.Together[int]
		var calls [][]int
		errs := map[int]error{}
		var mu sync.Mutex
		do := func(ctx context.Context, item int) {
			go func() {
				err := all.Do(ctx, item, func(ctx context.Context, items []int) error {
					calls = append(calls, items)
					return wait.Sleep(ctx, time.Minute)
				})
				mu.Lock()
				defer mu.Unlock()
				errs[item] = err
			}()
			synctest.Wait()
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		do(t.Context(), 1)
		do(first, 2)
		do(second, 3)
		stopFirst()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[int]error{1: nil}, errs)
		require.Equal(t, [][]int{{1}, {2, 3}}, calls)
		time.Sleep(30 * time.Second)
		stopSecond()
		synctest.Wait()
		require.Len(t, errs, 3)
		require.ErrorIs(t, errs[2], context.Canceled)
		require.ErrorIs(t, errs[3], context.Canceled)
		do(first, 4)
		require.ErrorIs(t, errs[4], context.Canceled)
	})
}

// TestTogetherAfterOneGaveUp: who comes to a call that has not begun is not ended with those who gave up before.
func TestTogetherAfterOneGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all wait.Together[int]
		do := func(ctx context.Context, item int) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- all.Do(ctx, item, func(ctx context.Context, _ []int) error { return wait.Sleep(ctx, time.Minute) })
			}()
			synctest.Wait()
			return done
		}
		one := do(t.Context(), 1)
		given, up := context.WithCancel(t.Context())
		_ = do(given, 2)
		up()
		synctest.Wait()
		three := do(t.Context(), 3)
		require.NoError(t, <-one)
		require.NoError(t, <-three)
	})
}
