package commontime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// cluster is servers with clocks, reached over a network.
type cluster struct {
	mu      sync.Mutex
	servers []*server
	ways    [2][2]time.Duration // of packets from one data centre to another, beside the delays of servers
	cut     bool                // packets between data centres are lost
	seed    uint64              // of the delays
	clocks  uint64
}

type server struct {
	store.Server
	began  time.Time
	offset time.Duration
	rate   float64       // how much faster than the true time
	delay  time.Duration // of the way there, and of the way back, at least
	more   time.Duration // at most so much more; twice that on the way back
	down   error
}

// newCluster has so many servers in each data centre, the first of which is near.
func newCluster(sizes ...int) *cluster {
	c := &cluster{}
	for dc, n := range sizes {
		for i := range n {
			c.servers = append(c.servers, &server{
				Server: store.Server{Name: fmt.Sprintf("server-%d-%d", dc, i), DataCentre: fmt.Sprintf("dc%d", dc)},
				began:  time.Now(),
			})
		}
	}
	return c
}

func (s *server) time() time.Time {
	return time.Now().Add(s.offset + time.Duration(s.rate*float64(time.Since(s.began))))
}

// number is the number of a data centre.
func number(dc string) int { return int(dc[len(dc)-1] - '0') }

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// from is the cluster as a process in a data centre sees it.
type from struct {
	*cluster
	dc     string
	delays map[string]*rand.Rand // by server: one seed gives each process the same ones again
}

func (c from) Servers(context.Context) (all []store.Server, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		one := s.Server
		one.Near = one.DataCentre == c.dc
		all = append(all, one)
	}
	return all, nil
}

func (c from) Time(ctx context.Context, name string) (time.Time, error) {
	var s *server
	c.mu.Lock()
	for _, one := range c.servers {
		if one.Name == name {
			s = one
		}
	}
	there, back, down := s.delay, s.delay, s.down
	if s.more > 0 {
		there += time.Duration(c.delays[name].Int64N(int64(s.more)))
		back = there + time.Duration(c.delays[name].Int64N(int64(s.more)))
	}
	here, far := number(c.dc), number(s.DataCentre)
	there, back = there+c.ways[here][far], back+c.ways[far][here]
	lost := c.cut && here != far
	c.mu.Unlock()
	if lost {
		<-ctx.Done()
		return time.Time{}, store.Wrap("time", ctx.Err())
	}
	wait := func(delay time.Duration) error {
		select {
		case <-time.After(delay):
			return nil
		case <-ctx.Done():
			return store.Wrap("time", ctx.Err())
		}
	}
	if err := wait(there); err != nil {
		return time.Time{}, err
	}
	c.mu.Lock()
	answer := s.time().Truncate(commontime.Resolution)
	c.mu.Unlock()
	if err := wait(back); err != nil {
		return time.Time{}, err
	}
	return answer, down
}

// machine is a process's clocks, which can be set and stopped.
type machine struct {
	mu         sync.Mutex
	wall, mono time.Duration // ahead of the true time
}

func (m *machine) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (c *cluster) clock(t *testing.T, dc string, m *machine, limit time.Duration) *commontime.Clock {
	began := time.Now()
	delays := map[string]*rand.Rand{}
	c.change(func() {
		c.clocks++
		for i, s := range c.servers {
			delays[s.Name] = rand.New(rand.NewPCG(c.seed, 1000*c.clocks+uint64(i)))
		}
	})
	clock, err := commontime.New(from{c, dc, delays}, commontime.Options{
		Limit: limit,
		Wall: func() time.Time {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Now().Add(m.wall)
		},
		Monotonic: func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Since(began) + m.mono
		},
	})
	require.NoError(t, err)
	t.Cleanup(clock.Close)
	return clock
}

func micros(t time.Time) store.Timestamp { return store.Timestamp(t.UnixMicro()) }

// TestOneTimeForAll draws, acknowledges and draws through many processes whose own
// clocks are anything, while clocks are set and machines suspended, servers fail,
// answers are late and data centres are cut off: who begins after somebody's
// acknowledgement in the same data centre has the higher timestamp, always; and so has
// who begins in the other one after the news may have come.
func TestOneTimeForAll(t *testing.T) {
	seed.Each(t, race.Fewer(40), func(seed uint64) bool {
		synctest.Test(t, func(t *testing.T) { oneTime(t, seed) })
		return true
	})
}

func oneTime(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := [][]int{{1}, {3}, {3, 3}, {5}, {2, 1}}[r.IntN(5)]
	c := newCluster(sizes...)
	c.seed = seed
	apart := []time.Duration{0, time.Millisecond, 60 * time.Millisecond}[r.IntN(3)]
	ahead := []time.Duration{0, 0, -200 * time.Millisecond, 200 * time.Millisecond}[r.IntN(4)] // the second one
	for _, s := range c.servers {
		if apart > 0 {
			s.offset = time.Duration(r.Int64N(int64(apart)))
		}
		if s.DataCentre == "dc1" {
			s.offset += ahead
		}
		s.rate = (2*r.Float64() - 1) * 190e-6 // and the processes' clocks have rate 1
		s.delay, s.more = time.Duration(r.IntN(1000))*time.Microsecond, time.Duration(1+r.IntN(5000))*time.Microsecond
	}
	farthest := []time.Duration{80 * time.Millisecond, 80 * time.Millisecond, 240 * time.Millisecond}[r.IntN(3)]
	for i := range 2 {
		c.ways[i][1-i] = time.Duration(r.Int64N(int64(farthest)))
	}
	// The quickest news that timestamps allow for. The fastest answer may be late by three times the most that one
	// of the ways is.
	var news [2][2]time.Duration
	for i := range 2 {
		half := (c.ways[i][1-i] - c.ways[1-i][i] + 16*time.Millisecond) / 2
		news[i][1-i] = min(max(0, half), commontime.Settled)
	}
	// The one whose clock is set at will, and which fails, is a minority.
	var liar *server
	if sizes[0] >= 3 {
		liar = c.servers[0]
	}
	type process struct {
		*machine
		clock *commontime.Clock
		dc    int
		steps bool // its wall clock is set, else it is suspended
	}
	var processes []process
	for i := range 4 {
		m := &machine{wall: time.Duration(r.Int64N(int64(2*time.Second))) - time.Second}
		dc := i % len(sizes)
		processes = append(processes, process{m, c.clock(t, fmt.Sprintf("dc%d", dc), m, 0), dc, r.IntN(2) == 0})
	}
	type write struct {
		dc    int
		ended time.Time
		ts    store.Timestamp
	}
	var acknowledged []write
	// last is the highest timestamp that can be known in a data centre.
	last := func(dc int) (ts store.Timestamp) {
		for _, w := range acknowledged {
			if time.Since(w.ended) >= news[w.dc][dc] {
				ts = max(ts, w.ts)
			}
		}
		return ts
	}
	for step := range 400 {
		p := processes[r.IntN(len(processes))]
		switch what := r.IntN(40); {
		case what == 0 && p.steps:
			d := time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
			p.set(func() { p.wall += d })
		case what == 1 && !p.steps: // suspended: the monotonic clock stands still
			d := time.Duration(r.Int64N(int64(5 * time.Second)))
			time.Sleep(d)
			p.set(func() { p.mono -= d })
		case what == 2 && liar != nil:
			c.change(func() { liar.offset = time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour })
		case what == 3 && liar != nil:
			c.change(func() {
				if liar.down = nil; r.IntN(2) == 0 {
					liar.down = errors.New("gone")
				}
			})
		case what == 4:
			time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
		case what == 5:
			c.change(func() { c.cut = !c.cut })
		case what == 6 && c.cut:
			time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
		case what < 20 && len(acknowledged) > 0: // just when the news comes
			w := acknowledged[len(acknowledged)-1]
			time.Sleep(time.Until(w.ended.Add(news[w.dc][p.dc])))
		}
		n, known := 1+r.IntN(3), last(p.dc)
		ts, err := p.clock.Next(t.Context(), n)
		if err != nil {
			require.ErrorIs(t, err, commontime.ErrUnknown, "step %d", step)
			require.ErrorIs(t, err, store.Unavailable)
			continue
		}
		require.Greater(t, ts, known, "step %d: what was acknowledged has a higher timestamp than what began later",
			step)
		end := ts + store.Timestamp(n) - 1
		above, err := processes[r.IntN(len(processes))].clock.Above(t.Context())
		if err == nil {
			require.Greater(t, above, end, "step %d", step)
		}
		if r.IntN(2) == 0 { // else it is never acknowledged
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			require.NoError(t, p.clock.Passed(t.Context(), end))
			acknowledged = append(acknowledged, write{p.dc, time.Now(), end})
		}
	}
	c.change(func() { c.cut = false })
	// Longer than machines are suspended: here they hear answers meanwhile, which are of the future then.
	time.Sleep(6 * time.Second)
	for _, p := range processes {
		ts, err := p.clock.Next(t.Context(), 1)
		require.NoError(t, err, "the servers have been asked again")
		require.Greater(t, ts, last(p.dc))
	}
}

// TestStaysNearTheTrueTime: timestamps are those of the servers, whatever this
// machine's wall clock says, and a write waits for about as long as the servers'
// clocks are uncertain.
func TestStaysNearTheTrueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(3)
		for _, s := range c.servers {
			s.delay = 100 * time.Microsecond
		}
		m := &machine{wall: time.Hour}
		clock := c.clock(t, "dc0", m, 0)
		for range 1000 {
			ts, err := clock.Next(t.Context(), 1)
			require.NoError(t, err)
			require.GreaterOrEqual(t, ts, micros(time.Now()), "below a server's clock")
			require.Less(t, ts, micros(time.Now().Add(2*time.Millisecond)))
			require.NoError(t, clock.Passed(t.Context(), ts))
			require.LessOrEqual(t, ts, micros(time.Now()), "acknowledged before a server's clock has passed it")
		}
		s := clock.Status()
		require.True(t, s.Known)
		require.Less(t, s.Width, time.Millisecond)
		require.InDelta(t, float64(time.Hour), float64(s.Ahead), float64(time.Millisecond))
		require.Len(t, s.Servers, 3)
		require.Zero(t, s.Apart)
		m.set(func() { m.wall = -time.Hour })
		ts, err := clock.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Less(t, ts, micros(time.Now().Add(10*time.Millisecond)), "a step of the wall clock leaves no trace")
		require.NoError(t, clock.Passed(t.Context(), ts))
	})
}

// TestTooFewServers: without a majority that agrees nobody writes, and the error says
// why; when it is back, writes go on.
func TestTooFewServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(3)
		clock := c.clock(t, "dc0", &machine{}, 0)
		draw := func() error { _, err := clock.Next(t.Context(), 1); return err }
		gone := errors.New("gone")
		c.change(func() { c.servers[0].down, c.servers[1].down = gone, gone })
		err := draw()
		require.ErrorIs(t, err, commontime.ErrUnknown)
		require.ErrorIs(t, err, gone)
		require.ErrorContains(t, err, "1 of 3 servers")
		c.change(func() { c.servers[0].down = nil })
		require.NoError(t, draw())

		c.change(func() { c.servers[0].offset = time.Hour })
		time.Sleep(2 * time.Second)
		err = draw()
		require.ErrorIs(t, err, commontime.ErrUnknown, "two clocks an hour apart, and no third")
		require.ErrorContains(t, err, "more than 500ms allows")
		require.Equal(t, time.Hour, clock.Status().Apart.Round(time.Minute))
		c.change(func() { c.servers[1].down = nil })
		time.Sleep(2 * time.Second)
		require.NoError(t, draw(), "the third decides")
		require.Positive(t, clock.Counts().Refusals)
		require.Positive(t, clock.Counts().Contradictions)
		require.Positive(t, clock.Counts().Failures)

		// A whole cluster that can't be reached: what is known counts for a while.
		c.change(func() {
			for _, s := range c.servers {
				s.down = gone
			}
		})
		time.Sleep(5 * time.Second)
		require.NoError(t, draw())
		time.Sleep(time.Hour)
		require.ErrorIs(t, draw(), commontime.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		c.change(func() { c.servers[0].delay = time.Minute })
		_, err = clock.Next(ctx, 1)
		require.Equal(t, store.Timeout, store.KindOf(err))
	})
}

// TestPassedOfAnother: a timestamp of another process is waited for, too, by one that
// has given out none.
func TestPassedOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(3)
		clock := c.clock(t, "dc0", &machine{}, 0)
		require.NoError(t, clock.Passed(t.Context(), 1))
		ts := micros(time.Now().Add(time.Minute))
		require.NoError(t, clock.Passed(t.Context(), ts))
		require.GreaterOrEqual(t, micros(time.Now()), ts)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, store.Timeout, store.KindOf(clock.Passed(ctx, ts+1e9)))
	})
}

// TestRefusedTimestampsLeaveNoTrace: a machine whose clock is set far ahead at any
// moment draws nothing from the future, neither then nor later.
func TestRefusedTimestampsLeaveNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1)
		m := &machine{}
		clock := c.clock(t, "dc0", m, 0)
		for range 50 {
			ts, err := clock.Next(t.Context(), 1)
			require.NoError(t, err)
			require.Less(t, ts, micros(time.Now().Add(100*time.Millisecond)))
			c.change(func() { c.servers[0].down = errors.New("gone") })
			m.set(func() { m.wall += time.Hour })
			_, err = clock.Next(t.Context(), 1)
			require.ErrorIs(t, err, commontime.ErrUnknown)
			c.change(func() { c.servers[0].down = nil })
		}
	})
}

// TestSeen: what comes after a read is above what the read returned, if that can be
// true.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1)
		clock := c.clock(t, "dc0", &machine{}, 0)
		next := func() store.Timestamp {
			ts, err := clock.Next(t.Context(), 1)
			require.NoError(t, err)
			return ts
		}
		next()
		seen := micros(time.Now().Add(400 * time.Millisecond))
		clock.Seen(seen)
		ts := next()
		require.Equal(t, seen+1, ts)
		require.NoError(t, clock.Passed(t.Context(), ts))
		require.GreaterOrEqual(t, micros(time.Now()), ts)

		clock.Seen(micros(time.Now().Add(time.Hour)))
		require.Less(t, next(), micros(time.Now().Add(100*time.Millisecond)), "nobody can have given that out")
		require.EqualValues(t, 1, clock.Counts().Unbelieved)
		clock.Seen(1)
		require.EqualValues(t, 1, clock.Counts().Unbelieved)
	})
}

// took is how long a write waits that takes no time itself.
func took(t *testing.T, clock *commontime.Clock) time.Duration {
	t.Helper()
	begin := time.Now()
	ts, err := clock.Next(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, clock.Passed(t.Context(), ts))
	return time.Since(begin)
}

// TestDataCentresThatCantBeCompared: while a process knows nothing of the clocks of another data
// centre, the stamp covers clocks that are apart by the limit. What is known makes no write wait
// while clocks agree, and is carried on through a cut, by drift.
func TestDataCentresThatCantBeCompared(t *testing.T) {
	for _, limit := range []time.Duration{commontime.DefaultLimit, 20 * time.Millisecond} {
		t.Run(fmt.Sprintf("a limit of %v", limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(1, 1)
				c.ways = [2][2]time.Duration{{0, 40 * time.Millisecond}, {40 * time.Millisecond, 0}}
				c.servers[0].delay = 100 * time.Microsecond
				clock := c.clock(t, "dc0", &machine{}, limit)
				require.InDelta(t, limit.Milliseconds(), took(t, clock).Milliseconds(), 10, "nothing is known yet")
				time.Sleep(time.Second)
				require.Less(t, took(t, clock), 45*time.Millisecond, "how far away it is may not be known yet")
				for range 3 {
					time.Sleep(time.Second)
					require.Less(t, took(t, clock), 2*time.Millisecond)
				}
				c.change(func() { c.cut = true })
				for range 12 { // not resting
					time.Sleep(5 * time.Second)
					took(t, clock)
				}
				time.Sleep(5 * time.Second)
				require.InDelta(t, 13, took(t, clock).Milliseconds(), 2, "0.2 ms for each second")
				time.Sleep(5 * time.Hour)
				require.InDelta(t, limit.Milliseconds(), took(t, clock).Milliseconds(), 10)
				require.Equal(t, 1, clock.Status().Silent)

				fresh := c.clock(t, "dc0", &machine{}, limit)
				took(t, fresh)
				require.InDelta(t, limit.Milliseconds(), took(t, fresh).Milliseconds(), 10, "it began in the cut")
				c.change(func() { c.cut = false })
				time.Sleep(6 * time.Second)
				for _, clock := range []*commontime.Clock{clock, fresh} {
					took(t, clock)
					time.Sleep(2 * time.Second)
					require.Less(t, took(t, clock), 2*time.Millisecond)
				}
			})
		})
	}
}

// TestDataCentresTooFarApart: two data centres whose clocks differ by more than the limit write
// nothing while they know that, neither the one ahead nor the one behind; and before, in order.
func TestDataCentresTooFarApart(t *testing.T) {
	for _, ahead := range []time.Duration{
		-5 * time.Second, -600 * time.Millisecond, -200 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond,
		510 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second,
	} {
		t.Run(fmt.Sprintf("%v ahead", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const way = 40 * time.Millisecond
				c := newCluster(3, 3)
				c.ways = [2][2]time.Duration{{0, way}, {way, 0}}
				for _, s := range c.servers {
					if s.delay = 200 * time.Microsecond; s.DataCentre == "dc1" {
						s.offset = ahead
					}
				}
				clocks := []*commontime.Clock{c.clock(t, "dc0", &machine{}, 0), c.clock(t, "dc1", &machine{}, 0)}
				for _, clock := range clocks { // both come to know all clocks
					_, _ = clock.Next(t.Context(), 1)
					time.Sleep(3 * time.Second)
					_, _ = clock.Next(t.Context(), 1)
				}
				time.Sleep(3 * time.Second)
				refused := 0
				for i, there := range clocks {
					here := clocks[1-i]
					x, err := there.Next(t.Context(), 1)
					if err != nil {
						refused++
						require.ErrorIs(t, err, commontime.ErrUnknown)
						require.ErrorContains(t, err, fmt.Sprintf("data centre dc%d are at least", 1-i))
						require.ErrorContains(t, err, map[bool]string{true: "ahead of", false: "behind"}[(ahead > 0) == (i == 0)])
						require.Equal(t, store.Unavailable, store.KindOf(err))
						continue
					}
					require.NoError(t, there.Passed(t.Context(), x))
					time.Sleep(way / 2)
					y, err := here.Next(t.Context(), 1)
					require.NoError(t, err)
					require.Greater(t, y, x)
					require.NoError(t, here.Passed(t.Context(), y))
				}
				if surely := ahead.Abs() > commontime.DefaultLimit+way; surely {
					require.Equal(t, 2, refused)
				} else {
					require.Zero(t, refused)
				}
				for i, clock := range clocks {
					status := clock.Status().DataCentres
					require.Len(t, status, 1)
					require.Equal(t, refused > 0, status[0].Refused)
					require.Equal(t, fmt.Sprintf("dc%d", 1-i), status[0].DataCentre)
					if i == 1 {
						status[0].Ahead = -status[0].Ahead
					}
					require.InDelta(t, ahead.Seconds(), status[0].Ahead.Seconds(), way.Seconds())
				}
				c.change(func() {
					for _, s := range c.servers {
						s.offset = 0
					}
				})
				time.Sleep(5 * time.Second)
				for _, clock := range clocks {
					require.Less(t, took(t, clock), 3*time.Millisecond, "their clocks have been set")
				}
			})
		})
	}
}

// lateAtFirst has the first answers of far servers wait for a process that does not run.
type lateAtFirst struct {
	from
	late  time.Duration
	asked map[string]bool
}

func (l *lateAtFirst) Time(ctx context.Context, name string) (time.Time, error) {
	got, err := l.from.Time(ctx, name)
	l.mu.Lock()
	again := l.asked[name]
	l.asked[name] = true
	l.mu.Unlock()
	if !again && name[:len("server-1")] == "server-1" {
		time.Sleep(l.late)
	}
	return got, err
}

// TestAProcessThatHasJustStarted does not take it for distance that the first answers were late, all at once: who hears
// of a write by news that takes the way has the higher timestamp.
func TestAProcessThatHasJustStarted(t *testing.T) {
	race.Skip(t)
	for _, x := range []struct{ way, ahead time.Duration }{
		{2 * time.Millisecond, 60 * time.Millisecond},
		{40 * time.Millisecond, 100 * time.Millisecond}, {40 * time.Millisecond, 400 * time.Millisecond},
	} {
		for _, late := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, 160 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(3, 3)
				c.ways = [2][2]time.Duration{{0, x.way}, {x.way, 0}}
				for _, s := range c.servers {
					if s.delay = 200 * time.Microsecond; s.DataCentre == "dc1" {
						s.offset = x.ahead
					}
				}
				there := c.clock(t, "dc1", &machine{}, 0)
				for range 5 {
					took(t, there)
					time.Sleep(time.Second)
				}
				here, err := commontime.New(&lateAtFirst{from{c, "dc0", nil}, late, map[string]bool{}}, commontime.Options{})
				require.NoError(t, err)
				t.Cleanup(here.Close)
				_, err = here.Next(t.Context(), 1)
				require.NoError(t, err)
				for begun := time.Now(); time.Since(begun) < 3*time.Second; {
					first, err := there.Next(t.Context(), 1)
					require.NoError(t, err)
					require.NoError(t, there.Passed(t.Context(), first))
					time.Sleep(x.way)
					second, err := here.Next(t.Context(), 1)
					require.NoError(t, err)
					require.Greater(t, second, first, "%v apart, %v ahead, %v late, %v after the start", x.way, x.ahead, late,
						time.Since(begun))
				}
				require.Less(t, took(t, there), 3*time.Millisecond, "the clocks there are ahead")
			})
		}
	}
}

// TestRefusedInACut: a data centre whose clocks were off when it was cut off, or ended, keeps the other one from
// writing for half an hour at most.
func TestRefusedInACut(t *testing.T) {
	race.Skip(t)
	for _, ahead := range []time.Duration{800 * time.Millisecond, 5 * time.Second, -5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(3, 3)
			c.ways = [2][2]time.Duration{{0, 40 * time.Millisecond}, {40 * time.Millisecond, 0}}
			for _, s := range c.servers[3:] {
				s.offset = ahead
			}
			here := c.clock(t, "dc0", &machine{}, 0)
			for range 5 {
				_, _ = here.Next(t.Context(), 1)
				time.Sleep(time.Second)
			}
			_, err := here.Next(t.Context(), 1)
			require.ErrorIs(t, err, commontime.ErrUnknown)
			c.change(func() { c.cut = true })
			for begun := time.Now(); err != nil; _, err = here.Next(t.Context(), 1) {
				require.Less(t, time.Since(begun), 30*time.Minute)
				time.Sleep(10 * time.Second)
			}
			require.Empty(t, here.Status().DataCentres)
		})
	}
}

// TestClocksOfOneDataCentreAhead: writes wait for what the clocks differ by, in the data centre
// behind, and for nothing in the one ahead.
func TestClocksOfOneDataCentreAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(3, 3)
		c.ways = [2][2]time.Duration{{0, 40 * time.Millisecond}, {40 * time.Millisecond, 0}}
		for _, s := range c.servers[3:] {
			s.offset = 200 * time.Millisecond
		}
		behind, ahead := c.clock(t, "dc0", &machine{}, 0), c.clock(t, "dc1", &machine{}, 0)
		for range 3 {
			took(t, behind)
			took(t, ahead)
			time.Sleep(time.Second)
		}
		require.InDelta(t, 200, took(t, behind).Milliseconds(), 2)
		require.Less(t, took(t, ahead), 2*time.Millisecond)
	})
}

// listOf is what a process sees that has an old list of the servers.
type listOf struct {
	from
	names []string
}

func (l listOf) Servers(ctx context.Context) (some []store.Server, err error) {
	all, err := l.from.Servers(ctx)
	for _, s := range all {
		if slices.Contains(l.names, s.Name) {
			some = append(some, s)
		}
	}
	return some, err
}

// TestAServerJoins: processes one of which does not know yet of a server that has joined, in its own data
// centre or in another one, have a server in common.
func TestAServerJoins(t *testing.T) {
	for _, far := range []bool{false, true} {
		for ahead := range 4 {
			t.Run(fmt.Sprintf("far: %v, %d clocks are ahead", far, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const way = 10 * time.Millisecond
					c := newCluster(4, 4)
					c.ways = [2][2]time.Duration{{0, way}, {way, 0}}
					for i, s := range c.servers {
						if s.delay = 200 * time.Microsecond; i < ahead {
							s.offset = 60 * time.Millisecond
						}
					}
					here := "dc0"
					if far {
						here = "dc1"
					}
					old := []string{"server-0-0", "server-0-1", "server-0-2", "server-1-0", "server-1-1", "server-1-2"}
					var clocks []*commontime.Clock
					for _, s := range []store.WallClock{
						from{c, "dc0", nil}, listOf{from{c, "dc0", nil}, old}, from{c, here, nil}, listOf{from{c, here, nil}, old},
					} {
						clock, err := commontime.New(s, commontime.Options{})
						require.NoError(t, err)
						t.Cleanup(clock.Close)
						clocks = append(clocks, clock)
					}
					for range 3 {
						for _, clock := range clocks {
							took(t, clock)
						}
						time.Sleep(2 * time.Second)
					}
					for _, there := range clocks[:2] {
						for _, here := range clocks[2:] {
							x, err := there.Next(t.Context(), 1)
							require.NoError(t, err)
							require.NoError(t, there.Passed(t.Context(), x))
							if far {
								time.Sleep(way / 2)
							}
							y, err := here.Next(t.Context(), 1)
							require.NoError(t, err)
							require.Greater(t, y, x)
						}
					}
				})
			})
		}
	}
}

// TestTwoServersJoin: a process that does not know yet of two servers that have joined, or of one that has taken the
// place of another one, has a server in common with processes that know it, which have just begun or have just read it.
func TestTwoServersJoin(t *testing.T) {
	for name, x := range map[string]struct{ all, old []string }{
		"two join":    {[]string{"a", "b", "c", "d", "e"}, []string{"a", "b", "c"}},
		"two of four": {[]string{"a", "b", "c", "d"}, []string{"a", "b"}},
		"one for one": {[]string{"b", "c", "d"}, []string{"a", "b", "c"}},
		"two leave":   {[]string{"a", "b", "c"}, []string{"a", "b", "c", "d", "e"}},
	} {
		for ahead := range 6 {
			t.Run(fmt.Sprintf("%s, %d clocks are ahead", name, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(5)
					for i, s := range c.servers {
						s.Name = string(rune('a' + i))
						if s.delay = 200 * time.Microsecond; i < ahead {
							s.offset = 60 * time.Millisecond
						}
					}
					known := x.old
					slow, err := commontime.New(listOf{from{c, "dc0", nil}, x.old}, commontime.Options{})
					require.NoError(t, err)
					t.Cleanup(slow.Close)
					quick, err := commontime.New(changing{from{c, "dc0", nil}, &known}, commontime.Options{})
					require.NoError(t, err)
					t.Cleanup(quick.Close)
					for range 36 {
						took(t, slow)
						took(t, quick)
						time.Sleep(2 * time.Second)
					}
					c.change(func() { known = x.all })
					for range 6 {
						took(t, slow)
						took(t, quick)
						time.Sleep(2 * time.Second)
					}
					fresh, err := commontime.New(listOf{from{c, "dc0", nil}, x.all}, commontime.Options{})
					require.NoError(t, err)
					t.Cleanup(fresh.Close)
					clocks := []*commontime.Clock{slow, quick, fresh}
					for range 3 {
						for _, before := range clocks {
							for _, after := range clocks {
								x, err := before.Next(t.Context(), 1)
								require.NoError(t, err)
								require.NoError(t, before.Passed(t.Context(), x))
								y, err := after.Next(t.Context(), 1)
								require.NoError(t, err)
								require.Greater(t, y, x)
							}
						}
					}
				})
			})
		}
	}
}

// changing is listOf with names that change.
type changing struct {
	from
	names *[]string
}

func (l changing) Servers(ctx context.Context) ([]store.Server, error) {
	l.mu.Lock()
	names := *l.names
	l.mu.Unlock()
	return listOf{l.from, names}.Servers(ctx)
}

// TestAnOldList: a process that can't read the list any more gives out no timestamps, until it can.
func TestAnOldList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(3)
		fails := &failing{from: from{c, "dc0", nil}}
		clock, err := commontime.New(fails, commontime.Options{})
		require.NoError(t, err)
		t.Cleanup(clock.Close)
		took(t, clock)
		fails.set(errors.New("no node answers"))
		for range 10 {
			took(t, clock)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(6 * time.Second)
		_, err = clock.Next(t.Context(), 1)
		require.ErrorIs(t, err, commontime.ErrUnknown)
		require.ErrorContains(t, err, "the list of them was read 2")
		require.ErrorContains(t, err, "no node answers")
		fails.set(nil)
		took(t, clock)
		time.Sleep(time.Hour) // it rests
		took(t, clock)
	})
}

// TestASlowList: a list that takes longer than an answer may is read all the same.
func TestASlowList(t *testing.T) {
	for name, x := range map[string]struct{ limit, first, later time.Duration }{
		"small limit":      {20 * time.Millisecond, 30 * time.Millisecond, 400 * time.Millisecond},
		"overloaded nodes": {0, 0, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(3)
				slow := &slowList{from: from{c, "dc0", nil}, takes: x.first}
				clock, err := commontime.New(slow, commontime.Options{Limit: x.limit})
				require.NoError(t, err)
				t.Cleanup(clock.Close)
				took(t, clock)
				c.change(func() { slow.takes = x.later })
				for range 60 {
					took(t, clock)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// slowList is a from whose list takes a while.
type slowList struct {
	from
	takes time.Duration
}

func (s *slowList) Servers(ctx context.Context) ([]store.Server, error) {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return s.from.Servers(ctx)
	case <-ctx.Done():
		return nil, store.Wrap("list", ctx.Err())
	}
}

// failing is a from whose list can fail.
type failing struct {
	from
	err error
}

func (f *failing) set(err error) { f.change(func() { f.err = err }) }

func (f *failing) Servers(ctx context.Context) ([]store.Server, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.from.Servers(ctx)
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := commontime.New(from{newCluster(1), "dc0", nil}, commontime.Options{Limit: time.Millisecond})
	require.ErrorIs(t, err, store.InvalidArgument)
}
