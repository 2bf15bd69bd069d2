package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/crashtest"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// An executor ends with an error at every failpoint that it comes to, each time that it
// comes there, and says which; another one ends the work.
func TestErrorsAtEachFailpoint(t *testing.T) {
	errHere := errors.New("here")
	reached := map[string]bool{}
	for _, c := range courses() {
		passes := map[string]int{}
		run := func(t *testing.T, at string, nth int) {
			var mu sync.Mutex
			count, stopped, ended := 0, false, false
			c := c
			c.failpoint = func(point string) error {
				mu.Lock()
				defer mu.Unlock()
				if at == "" {
					passes[point]++
				} else if point == at {
					if count++; count == nth {
						stopped = true
						return errHere
					}
				}
				return nil
			}
			c.stops = func(err error) bool {
				ended = errors.Is(err, errHere)
				return ended
			}
			c.run(t, faulttest.Case{})
			require.Equal(t, at != "", stopped, "%s %d", at, nth)
			require.Equal(t, stopped, ended, "%s %d: the error was dropped", at, nth)
		}
		synctest.Test(t, func(t *testing.T) { run(t, "", 0) })
		for point, times := range passes {
			reached[point] = true
			for nth := 1; nth <= times && !t.Failed(); nth++ {
				synctest.Test(t, func(t *testing.T) { run(t, point, nth) })
			}
		}
	}
	for _, point := range crashtest.Failpoints() {
		switch point {
		case "swap unknown": // nothing is unknown without a failure
		default:
			require.True(t, reached[point], "nobody came to %s", point)
		}
	}
}

func TestAnErrorAfterASwapOfUnknownOutcome(t *testing.T) {
	errHere := errors.New("here")
	synctest.Test(t, func(t *testing.T) {
		s, faults := faulttest.Case{Op: faultstore.Swap, Nth: 2, Way: &faulttest.Ways()[1]}.Store(memstore.New())
		f := newFixture(t, s, 10)
		faults.Enable(true)
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point,
			_ string) error {
			if point == "swap unknown" {
				return errHere
			}
			return nil
		}})
		x.Add(move.Split(nil, nil, 0, key(5)))
		require.ErrorIs(t, x.Run(t.Context()), errHere)
		require.Equal(t, 1, faulttest.Injected(faults))
	})
}

// While an operation fails for good nothing comes to its end; an executor goes on until
// its context ends, no longer, and says why. Then another one ends the work.
func TestAnExecutorEndsWithItsContext(t *testing.T) {
	for _, c := range courses() {
		for _, op := range c.calls {
			for _, kind := range []store.Kind{store.Unavailable, store.TooMuchDeadData} {
				if op == faultstore.ScanNodes || op == faultstore.DeleteNode || op == faultstore.Get && !c.stale {
					continue // of Collect; of a read that only late deletes make
				}
				name := fmt.Sprintf("%s/%s/%s", c.name, op, kind)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						way := faulttest.Way{Times: 1 << 40, Fault: faultstore.Fault{Ending: faultstore.Refused,
							Kind: kind}}
						s, faults := faulttest.Case{Op: op, Nth: 1, Way: &way}.Store(memstore.New())
						f := c.open(t, s)
						defer func() { require.NoError(t, s.Close()) }()
						o := executor.Options{Parallel: 1, WriteTimeout: time.Hour}
						if c.stale {
							o = (&run{course: &c}).options(0)
							o.Observe, o.Failpoint = nil, nil
						}
						o.Observe = func(e executor.Event) {
							if e.Kind != executor.Did || e.Err != nil {
								return
							}
							// Also what waited for its turn all the time is not done.
							task, _ := e.Effect.(move.Task)
							copies, removes := task.Phase == partmap.Copying, task.Phase == partmap.Draining
							if copies && (op == faultstore.Slice || op == faultstore.Put || op == faultstore.Get) ||
								removes && op == faultstore.Remove {
								t.Errorf("%s is said to be done", e.Effect)
							}
						}
						if op == faultstore.Delete { // there has to be a marker
							o.Failpoint = func(ctx context.Context, point, _ string) error {
								if point != "after swap copying" {
									return nil
								}
								faults.Enable(false)
								defer faults.Enable(true)
								return f.b.Delete(ctx, key(5))
							}
						}
						x := executor.New(s, mapclient.Of(f.c), f.id, o)
						x.Add(c.rounds[0](f, t)...)
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						faults.Enable(true)
						began := time.Now()
						err := x.Run(ctx)
						require.ErrorIs(t, err, store.Timeout)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						if op == faultstore.Read {
							require.ErrorContains(t, err, "look at the map of bucket")
						}
						require.Equal(t, time.Hour, time.Since(began))
						require.Positive(t, faulttest.Injected(faults))
						faults.Enable(false)
						o.Failpoint, o.Observe = nil, nil
						y := executor.New(s, mapclient.Of(f.c), f.id, o)
						y.Add(c.rounds[0](f, t)...)
						require.NoError(t, y.Run(t.Context()))
						for _, rg := range f.ranges(t) {
							require.Equal(t, partmap.Settled, rg.Phase)
							require.False(t, rg.SweepPending)
						}
					})
				})
			}
		}
	}
}

// What waits for its turn until the context ends is not done.
func TestWhatWaitsIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hooked{Store: memstore.New()}
		f := newFixtureOf(t, s, key(5))
		defer func() { require.NoError(t, s.Close()) }()
		for _, i := range []int{1, 7} {
			require.NoError(t, f.b.Put(t.Context(), key(i), []byte("v")))
		}
		s.put = func(ctx context.Context, _ store.Partition, _ []store.Row) error {
			<-ctx.Done()
			return store.Wrap("put", ctx.Err())
		}
		var mu sync.Mutex
		ends := 0
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Parallel: 1, Observe: func(e executor.Event) {
			mu.Lock()
			defer mu.Unlock()
			if task, _ := e.Effect.(move.Task); task.Phase == partmap.Copying && e.Kind == executor.Did {
				ends++
				if e.Err == nil {
					t.Errorf("%s is said to be done", e.Effect)
				}
			}
		}})
		for _, rg := range f.ranges(t) {
			x.Add(move.Refresh(&rg))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, x.Run(ctx), store.Timeout)
		require.Equal(t, 2, ends)
	})
}

// The event of a goal that is met has the rows that were copied for it.
func TestRowsOfGoals(t *testing.T) {
	f := newFixture(t, memstore.New(), 100)
	copied := map[string]int64{}
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Observe: func(e executor.Event) {
		if e.Kind == executor.GoalMet {
			copied[string(e.Goal.End)] = e.Rows.Copied
		}
	}})
	for _, goal := range []move.Goal{move.Split(nil, nil, 0, key(70)), move.Split(nil, key(70), 0, key(20))} {
		x.Add(goal)
		require.NoError(t, x.Run(t.Context()))
	}
	require.Equal(t, map[string]int64{"": 30, string(key(70)): 50}, copied)
}

// Goals that the map, or its checks, refuse end with an event, and the others go on.
func TestGoalsThatAreRefused(t *testing.T) {
	f := newFixture(t, memstore.New(), 100)
	var events []executor.Event
	o := executor.Options{Observe: func(e executor.Event) {
		if e.Kind != executor.Did {
			events = append(events, e)
		}
	}}
	kinds := func(of move.Goal) (kinds []executor.EventKind) {
		for _, e := range events {
			if e.Goal != nil && e.Goal.Equal(&of) {
				kinds = append(kinds, e.Kind)
				require.Equal(t, e.Kind == executor.GoalRefused, e.Err != nil)
				require.Equal(t, e.Kind == executor.GoalBegun, e.Batch > 0)
			}
		}
		return kinds
	}
	backwards, good := move.Split(nil, nil, 0, key(50), key(20)), move.Split(nil, nil, 0, key(30))
	x := executor.New(f.s, mapclient.Of(f.c), f.id, o)
	x.Add(backwards, good)
	require.NoError(t, x.Run(t.Context()))
	require.Equal(t, []executor.EventKind{executor.GoalRefused}, kinds(backwards))
	require.Equal(t, []executor.EventKind{executor.GoalBegun, executor.GoalMet}, kinds(good))
	require.Len(t, f.ranges(t), 2)
	x.Add(good)
	events = nil
	require.NoError(t, x.Run(t.Context()))
	require.Equal(t, []executor.EventKind{executor.GoalMet}, kinds(good), "it was met already")

	// A destination that is a home: only the map's own checks know.
	events = nil
	last := f.ranges(t)[1]
	o.NewID = func() uuid.UUID { return uuid.UUID(last.Partition) }
	y := executor.New(f.s, mapclient.Of(f.c), f.id, o)
	again := move.Refresh(&last)
	y.Add(again)
	require.NoError(t, y.Run(t.Context()))
	require.Equal(t, []executor.EventKind{executor.GoalRefused}, kinds(again))
	require.ErrorIs(t, events[0].Err, store.InvalidArgument)
	require.Equal(t, last.Partition, f.ranges(t)[1].Partition, "nothing has moved")
}

// refusing is a map client that takes no swap of a kind for a legal one.
type refusing struct {
	executor.Maps
	refuses func(change partmap.Change) bool
}

func (r refusing) Swap(ctx context.Context, change partmap.Change) error {
	if r.refuses(change) {
		return store.Errorf(store.InvalidArgument, "no such swap")
	}
	return r.Maps.Swap(ctx, change)
}

// What is refused of a move that has begun can't be left out: it ends the executor.
func TestSwapsThatAreRefused(t *testing.T) {
	f := newFixture(t, memstore.New(), 10)
	maps := refusing{mapclient.Of(f.c), func(change partmap.Change) bool {
		return slices.ContainsFunc(change.Next.Batches,
			func(b partmap.Batch) bool { return b.Phase == partmap.Copying })
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	x := executor.New(f.s, maps, f.id, executor.Options{})
	x.Add(move.Split(nil, nil, 0, key(5)))
	err := x.Run(ctx)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "no such swap")
	require.Equal(t, partmap.Marking, f.ranges(t)[1].Phase)
}

// Status tells what goes on.
func TestStatusWhileRangesMove(t *testing.T) {
	f := newFixture(t, memstore.New(), 100)
	var x *executor.Executor
	var mu sync.Mutex // tasks of a batch run at once
	seen := map[string]executor.Status{}
	x = executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(ctx context.Context, point,
		_ string) error {
		mu.Lock()
		if _, ok := seen[point]; !ok {
			seen[point] = x.Status()
		}
		mu.Unlock()
		if point == "after swap copying" {
			return f.b.Delete(ctx, key(75))
		}
		return nil
	}})
	require.Equal(t, executor.Status{}, x.Status())
	x.Add(move.Split(nil, nil, 0, key(70)), move.Split(key(200), nil, 0, key(300)))
	require.Equal(t, 2, x.Status().Goals)
	require.NoError(t, x.Run(t.Context()))
	progress := func(point string) executor.Progress {
		s := seen[point]
		require.Len(t, s.Batches, 1, point)
		require.EqualValues(t, s.Batches[0].ID, 2, point)
		require.EqualValues(t, 2, s.Ranges)
		require.Equal(t, partmap.Open, s.State)
		require.Positive(t, s.Epoch)
		return s.Batches[0].Progress
	}
	require.Equal(t, executor.Progress{}, progress("before copy"))
	require.Equal(t, executor.Progress{Copied: 30}, progress("before swap verifying"))
	require.Equal(t, executor.Progress{Copied: 30, Compared: 30}, progress("before swap draining"))
	require.Equal(t, executor.Progress{Copied: 30, Compared: 30, Searched: 30, Swept: 1}, progress("before swap swept"))
	require.Equal(t, executor.Progress{Copied: 30, Compared: 30, Searched: 30, Swept: 1}, x.Progress())
	end := x.Status()
	require.Empty(t, end.Batches)
	require.Zero(t, end.Goals)
	require.Equal(t, f.ranges(t)[1].Batch, uint64(2))

	// Another batch has counts of its own.
	clear(seen)
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	require.Equal(t, executor.Progress{Copied: 70}, seen["before swap verifying"].Batches[0].Progress)
	require.EqualValues(t, 100, x.Progress().Copied)
}
