package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// inner makes a scheduler over a store in memory, with a term of all shards.
func inner(t *testing.T, o Options) (*Scheduler, store.Store) {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	t.Cleanup(mapclient.Of(c).Close)
	g := New(s, mapclient.Of(c), o)
	g.enter(shard.All, &term{ctx: t.Context()})
	return g, s
}

// goalAt is a goal that cuts at a number.
func goalAt(n int) move.Goal { return move.Goal{Cuts: [][]byte{fmt.Appendf(nil, "%05d", n)}} }

func goalsUpTo(n int) (goals []move.Goal) {
	for i := range n {
		goals = append(goals, goalAt(i))
	}
	return goals
}

func TestWhatJobsHaveInFlight(t *testing.T) {
	state := func(s Stage, copies int64, cuts int) GoalState {
		return GoalState{Stage: s, Goal: move.Goal{Copies: copies, Cuts: make([][]byte, cuts)}}
	}
	a, b := store.BucketID{1}, store.BucketID{2}
	jobs := Jobs{
		{ID: "1", Bucket: a, Ended: time.Unix(1, 0), Goals: []GoalState{state(Begun, 1000, 1)}},
		{ID: "2", Bucket: a, Goals: []GoalState{state(Begun, 100, 3), state(Met, 1000, 1), state(Begun, 0, 1)}},
		{ID: "3", Bucket: b, Goals: []GoalState{
			state(Waiting, 1, 0), state(Dropped, 1000, 1), state(Refused, 1000, 1),
		}},
	}
	partitions, rows := jobs.InFlight()
	require.Equal(t, []int{3 + 2 + 2, 101}, []int{partitions, int(rows)})
	require.False(t, jobs.Waiting(a))
	require.True(t, jobs.Waiting(b))
	require.False(t, Jobs{{Bucket: b, Ended: time.Unix(1, 0), Goals: []GoalState{state(Waiting, 1, 0)}}}.Waiting(b))
	require.Equal(t, jobs[1], jobs.Find("2"))
	require.Nil(t, jobs.Find("4"))

	// Of a scheduler those count whose shard it leads.
	g, _ := inner(t, Options{})
	g.jobs = jobs
	partitions, rows = g.InFlight()
	require.Equal(t, []int{7, 101}, []int{partitions, int(rows)})
	g.leave(shard.Only(shard.Of(b)))
	partitions, rows = g.InFlight()
	require.Equal(t, []int{5, 100}, []int{partitions, int(rows)})
	require.True(t, g.Held(b))
	require.False(t, g.Held(a))
	_, ok := g.Job("4")
	require.False(t, ok)
	j, ok := g.Job("3")
	require.True(t, ok)
	require.Equal(t, b, j.Bucket)
}

// TestStatesOfJobs follow from those of their goals, and so do the rows and the phase while batches are in flight.
func TestStatesOfJobs(t *testing.T) {
	g, _ := inner(t, Options{})
	refused := errors.New("it was refused")
	for _, c := range []struct {
		ended  bool
		stages []Stage
		want   State
		err    string
	}{
		{false, nil, JobWaiting, ""},
		{false, []Stage{Waiting, Waiting}, JobWaiting, ""},
		{false, []Stage{Waiting, Begun}, JobRunning, ""},
		{false, []Stage{Met, Waiting}, JobRunning, ""},
		{true, []Stage{Met, Met}, JobDone, ""},
		{true, nil, JobDone, ""},
		{true, []Stage{Met, Refused}, JobFailed, "it was refused"},
		{true, []Stage{Dropped, Met}, JobFailed, "dropped before it began"},
	} {
		j := &Job{}
		for _, s := range c.stages {
			state := GoalState{Stage: s}
			if s == Refused {
				state.Err = refused
			}
			j.Goals = append(j.Goals, state)
		}
		if c.ended {
			j.Ended = time.Unix(1, 0)
		}
		got := g.snapshot(j)
		require.Equal(t, c.want, got.State, "%v", c.stages)
		require.Equal(t, c.err != "", got.Err() != nil, "%v", c.stages)
		if c.err != "" {
			require.Contains(t, got.Error, c.err)
		}
		for i := range got.Goals {
			if got.Goals[i].Stage == Refused {
				require.Equal(t, "it was refused", got.Goals[i].Error)
			}
		}
	}

	batch := func(id uint64, p partmap.Phase, n int64) executor.BatchStatus {
		b := executor.BatchStatus{}
		b.ID, b.Phase = id, p
		b.Progress.Copied, b.Progress.Compared, b.Progress.Searched = n, n/2, n/4
		return b
	}
	goal := func(s Stage, batch uint64, copies, copied int64) GoalState {
		return GoalState{Stage: s, Batch: batch, Copied: copied, verified: copied, searched: copied,
			Goal: move.Goal{Copies: copies}}
	}
	type goals = []GoalState
	type batches = []executor.BatchStatus
	for name, c := range map[string]struct {
		goals   goals
		batches batches
		want    [3]int64
		phase   string
	}{
		"nothing":        {nil, nil, [3]int64{}, ""},
		"none has begun": {goals{goal(Waiting, 0, 10, 0)}, nil, [3]int64{}, ""},
		"one is in flight": {
			goals{goal(Begun, 1, 10, 0)},
			batches{batch(1, partmap.Copying, 8)},
			[3]int64{8, 4, 2}, "copying",
		},
		"one is over": {goals{goal(Begun, 1, 10, 0)}, nil, [3]int64{10, 10, 10}, ""},
		"one is met":  {goals{goal(Met, 1, 10, 7)}, nil, [3]int64{7, 7, 7}, ""},
		"one met, one begun": {
			goals{goal(Met, 1, 10, 7), goal(Begun, 2, 5, 0)},
			batches{batch(2, partmap.Draining, 4)},
			[3]int64{11, 9, 8}, "draining",
		},
		"two share a batch": {
			goals{goal(Met, 1, 10, 7), goal(Begun, 1, 5, 0)},
			batches{batch(1, partmap.Settled, 12)},
			[3]int64{12, 6, 3}, "sweeping",
		},
		"the least advanced": {
			goals{goal(Begun, 1, 1, 0), goal(Begun, 2, 1, 0), goal(Begun, 3, 1, 0)},
			batches{batch(1, partmap.Settled, 0), batch(2, partmap.Copying, 0), batch(3, partmap.Draining, 0)},
			[3]int64{}, "copying",
		},
		"of others": {
			goals{goal(Waiting, 0, 1, 0)},
			batches{batch(1, partmap.Copying, 5)},
			[3]int64{}, "",
		},
	} {
		j := Job{Goals: c.goals}
		j.follow(executor.Status{Batches: c.batches})
		require.Equal(t, c.want, [3]int64{j.Copied, j.Verified, j.Searched}, name)
		require.Equal(t, c.phase, j.Phase, name)
	}
}

// TestJobsThatAreKept: all that have not ended, and the newest of the others.
func TestJobsThatAreKept(t *testing.T) {
	g, _ := inner(t, Options{})
	waits := g.Submit(store.BucketID{1}, "split", &Plan{Moves: goalsUpTo(1)})
	for i := range keepJobs + 20 {
		j := g.Submit(store.BucketID{1}, "nothing", &Plan{})
		require.Equal(t, JobDone, j.State)
		require.Equal(t, fmt.Sprint(i+2), j.ID)
		require.Len(t, g.jobs, min(i+2, keepJobs+1))
	}
	_, ok := g.Job(waits.ID)
	require.True(t, ok)
	_, ok = g.Job("21")
	require.False(t, ok)
	_, ok = g.Job("22")
	require.True(t, ok)
}

// TestGoalsAreFed to the executor, which has at most goalsAtOnce of them: the next ones come as soon as half of those
// have ended, whether they were met or refused.
func TestGoalsAreFed(t *testing.T) {
	for _, kind := range []executor.EventKind{executor.GoalMet, executor.GoalRefused} {
		g, _ := inner(t, Options{})
		id := store.BucketID{1}
		g.Submit(id, "split", &Plan{Moves: goalsUpTo(2*goalsAtOnce + 10)})
		b := g.buckets[id]
		require.Equal(t, goalsAtOnce, b.x.Status().Goals)
		require.Len(t, b.pending, goalsAtOnce+10)
		ends := func(left int) { // so many are left, and another one ends
			b.x.Abort()
			b.x.Add(goalsUpTo(left)...)
			goal := goalAt(left)
			g.observe(b, executor.Event{Kind: kind, Goal: &goal, Err: errors.New("refused")})
		}
		ends(goalsAtOnce/2 + 1)
		require.Equal(t, goalsAtOnce/2+1, b.x.Status().Goals, "more than half are left")
		ends(goalsAtOnce / 2)
		require.Equal(t, goalsAtOnce, b.x.Status().Goals)
		require.Len(t, b.pending, goalsAtOnce/2+10)
		ends(0)
		require.Equal(t, goalsAtOnce/2+10, b.x.Status().Goals)
		require.Nil(t, b.pending)
		require.Equal(t, goalsAtOnce/2+10, b.feed())
	}
}

// TestFailuresAreTold until what failed works, or loses to others, and not where the term ends anyway.
func TestFailuresAreTold(t *testing.T) {
	g, _ := inner(t, Options{})
	b := g.bucket(store.BucketID{1})
	away := store.Errorf(store.Unavailable, "it is away")
	failed := func(e executor.Event) (texts []string) {
		g.observe(b, e)
		for _, f := range b.failed {
			texts = append(texts, f.Error)
		}
		return texts
	}
	did := executor.Event{Kind: executor.Did, Effect: move.Wait{Epoch: 7}, Err: away}
	require.Len(t, failed(did), 1)
	require.Contains(t, failed(did)[0], "it is away")
	did.Err = store.Errorf(store.Conflict, "another process was faster")
	require.Empty(t, failed(did))
	did.Err = away
	require.Len(t, failed(did), 1)
	did.Err = nil
	require.Empty(t, failed(did))
	looked := executor.Event{Kind: executor.Looked, Err: away}
	require.Len(t, failed(looked), 1)
	require.Contains(t, failed(looked)[0], "look at the map")
	looked.Err = nil
	require.Empty(t, failed(looked))
	g.close(g.terms[shard.Of(b.id)])
	looked.Err, did.Err = away, away
	require.Empty(t, failed(looked))
	require.Empty(t, failed(did))
}

// TestTheListOfBusyBuckets is a hint: where it is damaged, or full, nobody waits for it.
func TestTheListOfBusyBuckets(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	b := &busy{regs: s}
	put := func(payload []byte) {
		rec, err := s.Read(ctx, store.Busy, []byte(busyKey), store.Serial)
		require.NoError(t, err)
		v := rec.Version
		require.NoError(t, s.Swap(ctx, store.Busy, []byte(busyKey), v, record.Seal(busyForm, record.Next(v), payload)))
	}
	ids := func() (n int) {
		all, err := b.read(ctx)
		require.NoError(t, err)
		for i := range all {
			require.True(t, i == 0 || string(all[i-1][:]) < string(all[i][:]), "they ascend")
		}
		return len(all)
	}
	for _, n := range []byte{5, 1, 9, 5} {
		require.NoError(t, b.set(ctx, store.BucketID{n}, true))
	}
	require.Equal(t, 3, ids())
	require.NoError(t, b.set(ctx, store.BucketID{7}, false))
	require.NoError(t, b.set(ctx, store.BucketID{5}, false))
	require.Equal(t, 2, ids())
	for _, n := range []int{1, 15, 17, 31} {
		put(make([]byte, n))
		_, err := b.read(ctx)
		require.Equal(t, store.Corrupt, store.KindOf(err), "%d bytes", n)
		require.NoError(t, b.set(ctx, store.BucketID{5}, true))
	}
	full := make([]byte, 0, 16*maxBusy)
	for i := range maxBusy - 1 {
		full = append(full, make([]byte, 14)...)
		full = append(full, byte(i>>8), byte(i))
	}
	put(full)
	for _, n := range []byte{5, 6} {
		require.NoError(t, b.set(ctx, store.BucketID{n}, true))
		require.Equal(t, maxBusy, ids())
	}
	require.NoError(t, b.set(ctx, store.BucketID{6}, false))
	require.Equal(t, maxBusy, ids(), "there was no room for it")
	require.NoError(t, b.set(ctx, store.BucketID{5}, false))
	require.Equal(t, maxBusy-1, ids())
	broken := &busy{regs: unreadable{s}}
	require.Equal(t, store.Unavailable, store.KindOf(broken.set(ctx, store.BucketID{6}, true)))
}

// TestABucketIsListed once the list says so, and until it does not any more.
func TestABucketIsListed(t *testing.T) {
	g, s := inner(t, Options{})
	b := g.bucket(store.BucketID{1})
	for _, busy := range []bool{true, false} {
		g.busy.regs = unreadable{s}
		require.Error(t, g.list(t.Context(), b, busy))
		require.Equal(t, !busy, b.listed)
		g.busy.regs = s
		require.NoError(t, g.list(t.Context(), b, busy))
		require.Equal(t, busy, b.listed)
	}
}

type unreadable struct{ store.Store }

func (unreadable) Read(context.Context, store.Table, []byte, store.Level) (store.Record, error) {
	return store.Record{}, store.Errorf(store.Unavailable, "it is away")
}

// TestProbesOfTheThrottle come ten in a second while something moves, else one in five seconds; those that fail tell
// nothing, and one that takes too long tells that the store is slow.
func TestProbesOfTheThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1000
		var mu sync.Mutex
		moving, probes, took, fails := 0, 0, time.Duration(0), error(nil)
		th := throttle{pace: wait.NewPacer(most), most: most, need: func() int { return 0 },
			probe: func(ctx context.Context) error {
				mu.Lock()
				probes++
				wait, err := took, fails
				mu.Unlock()
				select {
				case <-ctx.Done():
					return store.Wrap("read", ctx.Err())
				case <-time.After(wait):
				}
				return err
			}}
		ctx, stop := context.WithCancel(t.Context())
		th.begin(ctx)
		done := make(chan struct{})
		busy := func() []store.BucketID {
			mu.Lock()
			defer mu.Unlock()
			return make([]store.BucketID, moving)
		}
		go func() { th.run(ctx, busy); close(done) }()
		from := func(n int, d time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			moving, took, fails = n, d, err
		}
		count := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return probes
		}
		in := func(d time.Duration) int {
			before := count()
			time.Sleep(d)
			return count() - before
		}
		require.Equal(t, 12, in(time.Minute))
		from(1, 0, nil)
		in(5 * time.Second)
		require.Equal(t, 600, in(time.Minute))
		require.Equal(t, most, th.pace.Rate())
		from(1, 100*time.Millisecond, store.Errorf(store.Unavailable, "it is away"))
		in(time.Minute)
		require.Equal(t, most, th.pace.Rate(), "nothing is known of the store")
		from(1, time.Hour, nil)
		require.Equal(t, 10, in(11*time.Second), "each is given up after a second")
		require.Less(t, th.pace.Rate(), most/2)
		stop()
		<-done
	})
}

// TestRatesOfTheThrottle for each reading: what is known of the store without moves, and the rate that follows.
func TestRatesOfTheThrottle(t *testing.T) {
	const ms = time.Millisecond
	all := func(d time.Duration) []time.Duration { return []time.Duration{d, d, d, d, d, d, d} }
	for name, c := range map[string]struct {
		most, need, rate int
		base, took       time.Duration
		recent           []time.Duration
		moving           bool
		want             int
		wantBase         time.Duration
	}{
		"nothing moves":               {1000, 0, 300, 10 * ms, 20 * ms, all(20 * ms), false, 1000, 11 * ms},
		"it is fast":                  {1000, 0, 300, 10 * ms, 10 * ms, all(10 * ms), true, 350, 10 * ms},
		"it is as slow as may be":     {1000, 0, 300, 10 * ms, 10 * ms, all(20 * ms), true, 350, 10 * ms},
		"it is slow":                  {1000, 0, 300, 10 * ms, 21 * ms, all(21 * ms), true, 210, 10 * ms},
		"a fast one's limit":          {1000, 0, 300, ms, 3 * ms, all(3 * ms), true, 350, ms},
		"a fast one is slow":          {1000, 0, 300, ms, 4 * ms, all(4 * ms), true, 210, ms},
		"at the most":                 {1000, 0, 980, 10 * ms, 10 * ms, all(10 * ms), true, 1000, 10 * ms},
		"at the lowest":               {1000, 0, 60, 10 * ms, 90 * ms, all(90 * ms), true, 50, 10 * ms},
		"at the lowest it learns":     {1000, 0, 50, 10 * ms, 90 * ms, all(90 * ms), true, 50, 18 * ms},
		"what grows needs more":       {1000, 400, 500, 10 * ms, 90 * ms, all(90 * ms), true, 400, 10 * ms},
		"what grows needs it at once": {1000, 400, 60, 10 * ms, 10 * ms, all(10 * ms), true, 400, 10 * ms},
		"no more than the most":       {1000, 4000, 500, 10 * ms, 90 * ms, all(90 * ms), true, 1000, 10 * ms},
		"a low most":                  {10, 0, 1, 10 * ms, 10 * ms, all(10 * ms), true, 2, 10 * ms},
		"the median counts": {
			1000, 0, 300, 10 * ms, 90 * ms,
			[]time.Duration{ms, ms, 90 * ms, 90 * ms, ms, 90 * ms, ms}, true, 350, 10 * ms,
		},
		"most of them are slow": {
			1000, 0, 300, 10 * ms, ms,
			[]time.Duration{90 * ms, ms, 90 * ms, 90 * ms, ms, 90 * ms, ms}, true, 210, 10 * ms,
		},
		"nothing was read": {1000, 0, 300, 10 * ms, 10 * ms, nil, true, 350, 10 * ms},
	} {
		pace := wait.NewPacer(c.most)
		pace.SetRate(c.rate)
		th := throttle{pace: pace, most: c.most, need: func() int { return c.need }, base: c.base, recent: c.recent}
		require.Equal(t, c.want, th.judge(c.moving, c.took), name)
		require.Equal(t, c.wantBase, th.base, name)
	}
}

// failingMaps can't be read, unless err is nil.
type failingMaps struct {
	Maps
	mu  sync.Mutex
	err error
	at  []time.Time
}

func (m *failingMaps) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	m.mu.Lock()
	err := m.err
	if err != nil {
		m.at = append(m.at, time.Now())
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return m.Maps.Load(ctx, id)
}

// fail changes how it fails, and returns when it has failed until now.
func (m *failingMaps) fail(err error) (at []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, at, m.at = err, m.at, nil
	return at
}

// told is a log.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *told) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// take returns what was logged since the last time.
func (l *told) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// TestPausesAfterFailures are short at first, double, and have a bound; once something works they begin anew.
func TestPausesAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		require.NoError(t, c.CreateBucket(t.Context(), "bucket"))
		owner, err := door.Client(c).Owner(t.Context(), "bucket")
		require.NoError(t, err)
		m := &failingMaps{Maps: mapclient.Of(c)}
		var log told
		g := New(s, m, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = g.Run(ctx); close(done) }()
		time.Sleep(time.Minute)
		for range 2 {
			m.fail(store.Errorf(store.Unavailable, "it is away"))
			j := g.Submit(owner.ID, "refresh", &Plan{Moves: []move.Goal{{Cuts: [][]byte{[]byte(time.Now().String())}}}})
			time.Sleep(25 * time.Second)
			st := g.Status()
			require.Len(t, st.Buckets, 1)
			require.False(t, st.Buckets[0].Running)
			require.True(t, st.Buckets[0].Again.After(time.Now()))
			require.Contains(t, st.Buckets[0].Failures[0].Error, "it is away")
			at := m.fail(nil)
			time.Sleep(time.Minute)
			j, _ = g.Job(j.ID)
			require.False(t, j.Ended.IsZero())
			require.Empty(t, g.Status().Buckets)
			var pauses []time.Duration
			for i := range at[1:] {
				pauses = append(pauses, at[i+1].Sub(at[i]).Round(time.Millisecond))
			}
			const ms = time.Millisecond
			require.Equal(t, len(at), strings.Count(log.take(), "a bucket's moves have to wait"))
			require.Equal(t, []time.Duration{
				50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10_000 * ms,
			}, pauses)
		}

		// What does not mend by itself is not tried again until somebody asks.
		m.fail(store.Errorf(store.Corrupt, "it is damaged"))
		j := g.Submit(owner.ID, "refresh", &Plan{Moves: goalsUpTo(1)})
		time.Sleep(time.Minute)
		j, _ = g.Job(j.ID)
		require.Equal(t, JobFailed, j.State)
		require.ErrorContains(t, j.Err(), "it is damaged")
		require.Len(t, g.Status().Buckets, 1)
		require.Contains(t, g.Status().Buckets[0].Failures[0].Error, "it is damaged")
		require.Contains(t, log.take(), "a bucket's ranges can't be moved")
		require.Len(t, m.fail(nil), 1)
		g.Submit(owner.ID, "refresh", &Plan{Moves: goalsUpTo(1)})
		time.Sleep(time.Minute)
		require.Empty(t, g.Status().Buckets)

		// Of a bucket that was deleted nothing moves any more.
		for _, state := range []partmap.State{partmap.Closing, partmap.Deleted} {
			root, err := mapclient.Of(c).Load(ctx, owner.ID)
			require.NoError(t, err)
			change, err := mapclient.WithState(root, state, mapclient.Of(c).Stamp())
			require.NoError(t, err)
			require.NoError(t, mapclient.Of(c).Swap(ctx, change))
		}
		j = g.Submit(owner.ID, "refresh", &Plan{Moves: goalsUpTo(1)})
		time.Sleep(time.Minute)
		j, _ = g.Job(j.ID)
		require.Equal(t, JobFailed, j.State)
		require.ErrorIs(t, j.Err(), store.NotFound)
		require.ErrorContains(t, j.Err(), "is deleted")
		require.Empty(t, g.Status().Buckets)
		stop()
		<-done
	})
}

// TestAbortsOfOneBucket leave the others alone.
func TestAbortsOfOneBucket(t *testing.T) {
	g, _ := inner(t, Options{})
	a, b := store.BucketID{1}, store.BucketID{2}
	var jobs []Job
	for _, id := range []store.BucketID{a, b} {
		jobs = append(jobs, g.Submit(id, "split", &Plan{Moves: goalsUpTo(3)}))
	}
	state := func(i int) State {
		j, _ := g.Job(jobs[i].ID)
		return j.State
	}
	begun := goalAt(1)
	g.goal(b, &begun, func(s *GoalState) { s.Stage = Begun })
	require.Equal(t, 3, g.Abort(&a))
	require.Equal(t, []State{JobFailed, JobRunning}, []State{state(0), state(1)})
	require.Zero(t, g.Abort(&a))
	require.Zero(t, g.Abort(&store.BucketID{3}))
	require.Equal(t, 2, g.Abort(nil), "one has begun")
	require.Equal(t, JobRunning, state(1))
	require.Equal(t, 1, g.buckets[b].x.Status().Goals)
}

func TestSpansForPeople(t *testing.T) {
	for want, s := range map[string]keytext.Span{
		"[the first key, the end)": {}, "[a, the end)": {Start: []byte("a")}, "[the first key, b)": {End: []byte("b")},
		"[a, bc)": {Start: []byte("a"), End: []byte("bc")},
	} {
		require.Equal(t, want, span(s.Start, s.End))
	}
}

// manyLooks are maps that notice how many roots are looked at at once.
type manyLooks struct {
	Maps
	mu        sync.Mutex
	now, most int
}

func (m *manyLooks) Look(context.Context, store.BucketID) (*partmap.Root, error) {
	m.mu.Lock()
	m.now++
	m.most = max(m.most, m.now)
	m.mu.Unlock()
	time.Sleep(time.Second)
	m.mu.Lock()
	m.now--
	m.mu.Unlock()
	return nil, store.Errorf(store.Unavailable, "it is away")
}

// TestAScanLooksAtSomeRootsAtOnce, and tells what it could not look at.
func TestAScanLooksAtSomeRootsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log told
		g, _ := inner(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const roots = 100
		for i := range roots {
			_, err := g.maps.(*mapclient.Client).Create(t.Context(), store.BucketID{byte(i)}, nil)
			require.NoError(t, err)
		}
		m := &manyLooks{Maps: g.maps}
		g.maps = m
		began := time.Now()
		g.scan(t.Context(), shard.All, 0)
		require.Equal(t, 32, m.most)
		s := g.Status().Scan
		require.Equal(t, roots, s.Roots)
		require.Zero(t, s.Found)
		require.Contains(t, s.Error, "it is away")
		require.True(t, began.Before(s.Ended) && !s.Began.Before(began))
		require.Equal(t, roots, strings.Count(log.take(), "the scan can't look at a root"))

		// Where the roots can't be found the scan waits, and says so, until it can go on or its term ends.
		ctx, stop := context.WithCancel(t.Context())
		g.store = noRoots{g.store}
		done := make(chan struct{})
		go func() { g.scan(ctx, shard.All, 1); close(done) }()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		require.Contains(t, g.Status().Scan.Error, "no roots")
		require.Equal(t, 3, strings.Count(log.take(), "the scan of roots can't go on"))
		stop()
		<-done
		require.True(t, g.Status().Scan.Ended.IsZero())
	})
}

type noRoots struct{ Store }

func (noRoots) Scan(context.Context, store.Table, []byte, int) ([][]byte, error) {
	return nil, store.Errorf(store.Unavailable, "no roots")
}

// TestLinesAreFair: of two choices in a row one is what has waited longest, and the other what has to keep up most.
func TestLinesAreFair(t *testing.T) {
	for _, c := range []struct {
		needs []int // of those that wait
		want  []int // in turn; each is replaced by its like
	}{
		{[]int{0}, []int{0, 0}},
		{[]int{0, 0, 0}, []int{0, 0}},
		{[]int{0, 5}, []int{1, 0, 1, 0}},
		{[]int{0, 5, 9}, []int{2, 0, 2, 0}},
		{[]int{0, 9, 9}, []int{1, 0, 1}},
		{[]int{9, 5, 9}, []int{0, 0, 0}},
	} {
		var l line
		for i, want := range c.want {
			got := l.next(len(c.needs), func(i int) int { return c.needs[i] })
			require.Equal(t, want, got, "%v, choice %d", c.needs, i)
		}
	}
}

// TestRoomThatComesTooLate is given back: whoever waits may get room at the moment when it gives up.
func TestRoomThatComesTooLate(t *testing.T) {
	g, _ := inner(t, Options{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	late := 0
	for range 200 {
		end, err := g.room(ctx, &bucket{}, false)
		if err == nil {
			end()
			continue
		}
		late++
	}
	require.Positive(t, late)
	require.Zero(t, g.copies.taken)
}

func TestLoadsOfAppends(t *testing.T) {
	for _, c := range []struct {
		a    Append
		fits bool
	}{
		{Append{RowsPerSecond: 0.1, ForS: 0.1, MaxRows: 10}, true},
		{Append{RowsPerSecond: 0, ForS: 1, MaxRows: 10}, false},
		{Append{RowsPerSecond: 1, ForS: 0, MaxRows: 10}, false},
		{Append{RowsPerSecond: 1, ForS: 1, MaxRows: 9}, false},
		{Append{RowsPerSecond: math.Inf(1), ForS: 1, MaxRows: 10}, false},
		{Append{RowsPerSecond: math.NaN(), ForS: 1, MaxRows: 10}, false},
		{Append{RowsPerSecond: 1, ForS: math.NaN(), MaxRows: 10}, false},
	} {
		require.Equal(t, c.fits, c.a.Check() == nil, "%+v", c.a)
	}
}
