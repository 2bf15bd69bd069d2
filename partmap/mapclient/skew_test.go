package mapclient_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// timed is a store whose servers have wall clocks; they are asked in turn.
type timed struct {
	*hooked
	mu      sync.Mutex
	offsets []time.Duration // of each server's clock from the true time
	asked   int
	delay   time.Duration // of the way there, and of the way back
	late    time.Duration // until the process gets round to the answer
	err     error
}

func (s *timed) Time(ctx context.Context) (time.Time, string, error) {
	s.mu.Lock()
	which := s.asked % len(s.offsets)
	s.asked++
	offset, delay, late, err := s.offsets[which], s.delay, s.late, s.err
	s.mu.Unlock()
	wait := func() error {
		select {
		case <-time.After(delay):
			return nil
		case <-ctx.Done():
			return store.Wrap("time", ctx.Err())
		}
	}
	if err := wait(); err != nil {
		return time.Time{}, "", err
	}
	answer := time.Now().Add(offset)
	if err := wait(); err != nil {
		return time.Time{}, "", err
	}
	time.Sleep(late)
	return answer, fmt.Sprintf("server-%d", which), err
}

func (s *timed) change(f func(s *timed)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// clocked is a world with servers' clocks, whose client's wall clock can be set
// and whose monotonic clock can be stopped for a while.
type clocked struct {
	*world
	servers *timed
	mu      sync.Mutex
	wall    time.Duration // ahead of the true time
	mono    time.Duration
}

func newClocked(t *testing.T, offsets ...time.Duration) *clocked {
	c := &clocked{servers: &timed{hooked: newHooked(), offsets: offsets}}
	c.world = &world{t: t, ctx: t.Context(), store: c.servers.hooked, id: store.BucketID{1}}
	require.NoError(t, mapclient.InitClocks(c.ctx, c.store, 1))
	c.Client = c.another(mapclient.Options{})
	_, err := c.Create(c.ctx, c.id, nil)
	require.NoError(t, err)
	return c
}

// another is a client with these clocks.
func (c *clocked) another(o mapclient.Options) *mapclient.Client {
	begin := time.Now()
	o.Clocks = 1
	o.Now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(c.wall)
	}
	o.Monotonic = func() time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Since(begin) + c.mono
	}
	m, err := mapclient.NewNetwork(c.servers, o)
	require.NoError(c.t, err)
	c.t.Cleanup(m.Close)
	return m
}

// set changes the clocks at a moment when nobody looks at them: a comparison that is
// under way would fail for the step, as it should.
func (c *clocked) set(f func()) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *clocked) off(says ...string) {
	c.t.Helper()
	err := c.CheckClock(c.ctx)
	require.ErrorIs(c.t, err, mapclient.ErrClockOff)
	require.Equal(c.t, store.Unavailable, store.KindOf(err))
	for _, word := range says {
		require.ErrorContains(c.t, err, word)
	}
	l, err := c.Acquire(c.ctx, c.id)
	require.NoError(c.t, err, "reads go on")
	require.True(c.t, l.Valid())
}

func (c *clocked) right() {
	c.t.Helper()
	require.NoError(c.t, c.CheckClock(c.ctx))
}

// TestClockThatIsOff: by more than the limit in either direction nobody may write;
// a step is noticed at once, both ways, although the last answers are fresh.
func TestClockThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 0)
		require.Empty(t, c.Skew().Servers, "nothing is known before the first poll")
		c.right()
		for _, d := range []time.Duration{490 * time.Millisecond, -490 * time.Millisecond} {
			c.set(func() { c.wall = d })
			c.right()
			require.Equal(t, d, c.Skew().Ahead)
		}
		for d, says := range map[time.Duration]string{
			2 * time.Second: "2s (±1ms) ahead of that of server-0", -time.Hour: "1h0m0s (±1ms) behind that of server-0", 501 * time.Millisecond: "more than 500ms allows",
		} {
			c.set(func() { c.wall = d })
			c.off(says)
			time.Sleep(time.Minute)
			c.off(says)
			require.Equal(t, d, c.Skew().Ahead)
			c.set(func() { c.wall = 0 })
			c.right()
		}
		require.EqualValues(t, 6, c.Counts().ClockRefusals)
		require.Zero(t, c.Counts().ClockFailures)
	})
}

// TestClockOfOneServer: that of a single server which is wrong stops nobody, also
// where it is the first to be asked; that of most does.
func TestClockOfOneServer(t *testing.T) {
	for name, c := range map[string]struct {
		offsets []time.Duration
		right   bool
	}{
		"one of three, asked first": {[]time.Duration{time.Hour, 0, 0}, true},
		"one of three, asked last":  {[]time.Duration{0, 0, -time.Hour}, true},
		"one of two":                {[]time.Duration{-10 * time.Second, 0}, true},
		"two of five":               {[]time.Duration{time.Hour, time.Hour, 0, 0, 0}, false}, // at first
		"all of them":               {[]time.Duration{5 * time.Second, 5 * time.Second, 6 * time.Second}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClocked(t, c.offsets...)
				if c.right {
					w.right()
				} else {
					w.off("behind those of 3 servers")
				}
				for range 60 {
					time.Sleep(time.Second)
					w.lease()
				}
				require.Len(t, w.Skew().Servers, len(c.offsets))
				if c.right || len(c.offsets) == 5 {
					w.right()
					require.Zero(t, w.Skew().Ahead)
				} else {
					w.off(fmt.Sprintf("those of %d servers", len(c.offsets)))
				}
				for i, s := range w.Skew().Servers {
					require.Equal(t, -c.offsets[i], s.Ahead, s.Server)
				}
			})
		})
	}
}

// TestClockOfAServerThatIsMended: what was refused comes back without a step of
// this process's clock.
func TestClockOfAServerThatIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 3*time.Second)
		c.off("behind that of server-0")
		c.servers.change(func(s *timed) { s.offsets[0] = 0 })
		for range 5 {
			time.Sleep(time.Second)
			c.lease()
		}
		c.right()
	})
}

// TestClockIsMeasuredAtEveryPoll, and a slow way there is no skew: half of it is
// the error, and counts against the process.
func TestClockIsMeasuredAtEveryPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 0)
		c.servers.change(func(s *timed) { s.delay = 50 * time.Millisecond })
		for range 60 {
			c.lease()
			time.Sleep(time.Second)
		}
		counts := c.Counts()
		require.InDelta(t, counts.Polls, counts.ClockAnswers, 1)
		require.Zero(t, c.Skew().Ahead)
		require.Equal(t, 51*time.Millisecond, c.Skew().Bound)
		c.right()
		c.set(func() { c.wall = 460 * time.Millisecond })
		c.off("460ms (±51ms)")
	})
}

// TestClockThatCantBeCompared: without any answer nobody writes; one that is known
// counts for a while.
func TestClockThatCantBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 0)
		gone := errors.New("gone")
		c.servers.change(func(s *timed) { s.err = gone })
		require.ErrorIs(t, c.CheckClock(c.ctx), gone)
		c.off("could not be compared")
		c.servers.change(func(s *timed) { s.err = nil })
		c.right()
		c.servers.change(func(s *timed) { s.err = gone })
		time.Sleep(5 * time.Second)
		c.right()
		time.Sleep(time.Minute)
		c.off("could not be compared")
		c.servers.change(func(s *timed) { s.err, s.delay = nil, time.Hour })
		c.off("could not be compared")
		require.NotZero(t, c.Counts().ClockFailures)
		ctx, cancel := context.WithTimeout(c.ctx, time.Millisecond)
		defer cancel()
		require.Equal(t, store.Timeout, store.KindOf(c.CheckClock(ctx)))
	})
}

// A machine that is so busy that answers say little stops nobody whose clock is known
// to be right; a clock that goes wrong then is noticed all the same.
func TestClockOfABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 0)
		require.NoError(t, c.CheckClock(c.ctx))
		c.servers.change(func(s *timed) { s.late = 900 * time.Millisecond }) // the clock seems to be 450 ms ahead, or 900
		for range 100 {
			c.lease()
			time.Sleep(time.Second)
			c.set(func() { c.wall += 50 * time.Microsecond }) // it runs a little fast
			require.NoError(t, c.CheckClock(c.ctx))
		}
		s := c.Skew()
		require.Less(t, s.Bound, 120*time.Millisecond)
		require.LessOrEqual(t, (s.Ahead - 5*time.Millisecond).Abs(), s.Bound, "the truth is within the bound")

		c.set(func() { c.wall = time.Second })
		c.off("ahead of")
		c.servers.change(func(s *timed) { s.late = 0 }) // a step voids what was known
		c.set(func() { c.wall = 0 })
		require.NoError(t, c.CheckClock(c.ctx))
		c.servers.change(func(s *timed) { s.offsets[0] = -time.Second })
		c.lease()
		time.Sleep(2 * time.Second)
		c.off("ahead of")
	})
}

// TestClockAfterASuspension: the monotonic clock stood still meanwhile. What was
// measured before says nothing; a new answer does.
func TestClockAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t, 0)
		c.right()
		asked := c.Counts().ClockAnswers
		c.set(func() { c.mono -= 5 * time.Second })
		time.Sleep(5*time.Second - time.Millisecond)
		c.right()
		require.Greater(t, c.Counts().ClockAnswers, asked)
		require.Zero(t, c.Skew().Ahead)
	})
}

// TestClockOfStoresWithoutServers is never off; neither is the embedded form's.
func TestClockOfStoresWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
		require.NoError(t, w.CheckClock(w.ctx))
		require.Empty(t, w.Skew())
		require.Contains(t, w.Skew().String(), "not compared")
		e := newWorld(t, 1, mapclient.Options{})
		require.NoError(t, e.CheckClock(e.ctx))
		require.Empty(t, e.Skew())
		_, err := mapclient.NewNetwork(w.store, mapclient.Options{MaxClockSkew: time.Millisecond})
		require.ErrorIs(t, err, store.InvalidArgument)
	})
}
