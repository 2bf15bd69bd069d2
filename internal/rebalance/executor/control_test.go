package executor_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"testing/synctest"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A pause lets what has begun come to its end, and nothing begin.
func TestPausedMovesEndAndNoneBegins(t *testing.T) {
	const rows = 500
	f := newFixture(t, memstore.New(), rows)
	gate := pause.NewGate(f.s, mapclient.Of(f.c), 0, time.Now)
	now := time.Now()
	var x *executor.Executor
	x = executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Gate: gate,
		Failpoint: func(ctx context.Context, point, _ string) error {
			if point == "after swap copying" {
				_, _, err := pause.Set(ctx, f.s, nil, pause.Pause{Since: now, Why: "a test"}, now)
				require.NoError(t, err)
				x.Add(move.Split(key(100), nil, 0, key(200)))
			}
			return nil
		}})
	f.underLoad(t, rows, func() {
		x.Add(move.Split(nil, nil, 0, key(100)))
		err := x.Run(t.Context())
		var paused *pause.Error
		require.ErrorAs(t, err, &paused, "the second goal can't begin")
		require.Equal(t, "a test", paused.Pause.Why)
		require.True(t, x.Status().Held)
		rs := f.ranges(t)
		require.Len(t, rs, 2)
		require.Equal(t, partmap.Settled, rs[1].Phase, "the first one came to its end")
		require.False(t, rs[1].SweepPending)

		_, err = pause.Lift(t.Context(), f.s, nil)
		require.NoError(t, err)
		x.Hold(nil)
		require.NoError(t, x.Run(t.Context()))
	})
	require.Len(t, f.ranges(t), 3)
}

// When a pause is lifted, the next move begins at once, also while the task of another batch takes
// long.
func TestMovesBeginWhenAPauseIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureOf(t, memstore.New(), key(5))
		t.Cleanup(func() { require.NoError(t, f.s.Close()) })
		second := make(chan struct{})
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			Failpoint: func(_ context.Context, point, _ string) error {
				if point == "before copy" {
					<-second
				}
				return nil
			},
			Observe: func(e executor.Event) {
				if e.Kind == executor.GoalBegun && string(e.Goal.Start) == string(key(5)) {
					close(second)
				}
			},
		})
		x.Add(move.Split(nil, key(5), 0, key(2)))
		done := make(chan error)
		go func() { done <- x.Run(t.Context()) }()
		synctest.Wait() // the copy of the first move is held up
		x.Hold(&pause.Pause{Why: "a test"})
		x.Add(move.Split(key(5), nil, 0, key(7)))
		synctest.Wait()
		require.Len(t, x.Status().Batches, 1)
		x.Hold(nil)
		require.NoError(t, <-done)
		require.Len(t, f.ranges(t), 4)
	})
}

// While others wait a Run begins one batch, with all goals that are ready, and leaves what is wanted later to the next
// Run. When they do not wait any more, the next move begins at once, also while the task of the batch takes long.
func TestARunBeginsOneBatchWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureOf(t, memstore.New(), key(3), key(6))
		t.Cleanup(func() { require.NoError(t, f.s.Close()) })
		goOn := make(chan struct{})
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			Failpoint: func(_ context.Context, point, _ string) error {
				if point == "before copy" {
					<-goOn
				}
				return nil
			},
		})
		later := func() (batches int, ended chan error) {
			ended = make(chan error)
			go func() { ended <- x.Run(t.Context()) }()
			synctest.Wait() // the copies of the first batch are held up
			x.Add(move.Split(key(6), nil, 0, key(7)))
			synctest.Wait()
			return len(x.Status().Batches), ended
		}
		x.Yield(true)
		x.Add(move.Split(nil, key(3), 0, key(1)), move.Split(key(3), key(6), 0, key(4)))
		batches, ended := later()
		require.Equal(t, 1, batches)
		goOn <- struct{}{}
		goOn <- struct{}{}
		require.NoError(t, <-ended)
		require.Len(t, f.ranges(t), 5, "both goals that were ready have been met")
		require.Equal(t, 1, x.Status().Goals, "the third one is left")
		require.Empty(t, x.Status().Batches)

		batches, ended = later() // the same goal again: the next Run begins it although others wait
		require.Equal(t, 1, batches)
		goOn <- struct{}{}
		require.NoError(t, <-ended)
		require.Len(t, f.ranges(t), 6)

		x.Add(move.Merge(nil, key(3)))
		ended = make(chan error)
		go func() { ended <- x.Run(t.Context()) }()
		synctest.Wait()
		x.Add(move.Merge(key(3), key(6)))
		synctest.Wait()
		require.Len(t, x.Status().Batches, 1)
		x.Yield(false)
		synctest.Wait()
		require.Len(t, x.Status().Batches, 2)
		close(goOn)
		require.NoError(t, <-ended)
		require.Len(t, f.ranges(t), 4)
	})
}

// Goals of a bucket that is being deleted, or under a pause, have to wait although others wait, too: Run says why.
func TestARunThatYieldsTellsWhyGoalsWait(t *testing.T) {
	for name, stop := range map[string]func(t *testing.T, f *fixture, x *executor.Executor) error{
		"closing": func(t *testing.T, f *fixture, _ *executor.Executor) error {
			root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
			require.NoError(t, err)
			change, err := mapclient.WithState(root, partmap.Closing, mapclient.Of(f.c).Stamp())
			require.NoError(t, err)
			return mapclient.Of(f.c).Swap(t.Context(), change)
		},
		"paused": func(_ *testing.T, _ *fixture, x *executor.Executor) error {
			x.Hold(&pause.Pause{Why: "a test"})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, memstore.New(), 10)
			var x *executor.Executor
			once := false
			x = executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
				Failpoint: func(_ context.Context, point, _ string) error {
					if point == "before copy" && !once {
						once = true
						x.Add(move.Split(key(5), nil, 0, key(7)))
						require.NoError(t, stop(t, f, x))
					}
					return nil
				},
			})
			x.Yield(true)
			x.Add(move.Split(nil, nil, 0, key(5)))
			err := x.Run(t.Context())
			require.Error(t, err)
			_, paused := errors.AsType[*pause.Error](err)
			require.Equal(t, name == "paused", paused)
			require.Equal(t, name == "closing", store.KindOf(err) == store.Unavailable && !paused)
			require.Equal(t, 1, x.Status().Goals)
		})
	}
}

func TestAbortDropsWhatHasNotBegun(t *testing.T) {
	const rows = 500
	f := newFixture(t, memstore.New(), rows)
	var x *executor.Executor
	x = executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
		Failpoint: func(_ context.Context, point, _ string) error {
			if point == "after swap copying" {
				x.Add(move.Split(key(100), nil, 0, key(200)))
				require.Len(t, x.Abort(), 2, "the goal under way is not needed any more: its move is in the map")
			}
			return nil
		}})
	x.Add(move.Split(nil, nil, 0, key(100)))
	require.NoError(t, x.Run(t.Context()))
	rs := f.ranges(t)
	require.Len(t, rs, 2, "what had begun went forward, what had not was dropped")
	require.Equal(t, partmap.Settled, rs[1].Phase)
}

// stalled holds swaps of roots up.
type stalled struct {
	executor.Maps
	before func(change partmap.Change)
}

func (s stalled) Swap(ctx context.Context, change partmap.Change) error {
	s.before(change)
	return s.Maps.Swap(ctx, change)
}

// A mover is held up between its look at the pause and the swap by which its batch would
// begin, for as long as anybody likes: nothing begins after somebody was told that all is
// quiet.
func TestAMoverThatStallsBeforeItBegins(t *testing.T) {
	f := newFixture(t, memstore.New(), 10)
	reached, goOn := make(chan struct{}), make(chan struct{})
	held := stalled{mapclient.Of(f.c), func(change partmap.Change) {
		if len(change.Next.Batches) > 0 {
			select {
			case <-reached:
			default:
				close(reached)
				<-goOn
			}
		}
	}}
	x := executor.New(f.s, held, f.id, executor.Options{Gate: pause.NewGate(f.s, mapclient.Of(f.c), 0, time.Now)})
	x.Add(move.Split(nil, nil, 0, key(5)))
	done := make(chan error, 1)
	go func() { done <- x.Run(t.Context()) }()
	<-reached
	now := time.Now()
	_, _, err := pause.Set(t.Context(), f.s, nil, pause.Pause{Since: now}, now)
	require.NoError(t, err)
	require.NoError(t, pause.Quiet(t.Context(), f.s, mapclient.Of(f.c), nil, time.Now, nil))
	before, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	close(goOn)
	var paused *pause.Error
	require.ErrorAs(t, <-done, &paused)
	after, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	require.Equal(t, before, after, "a batch began while all was quiet")
}

// ending is a map client whose first swap that begins a batch ends in some way.
type ending struct {
	executor.Maps
	once sync.Once
	end  func(swap func() error) error
}

func (e *ending) Swap(ctx context.Context, change partmap.Change) (err error) {
	swap := func() error { return e.Maps.Swap(ctx, change) }
	if len(change.Next.Batches) == 0 {
		return swap()
	}
	ended := false
	e.once.Do(func() { ended, err = true, e.end(swap) })
	if ended {
		return err
	}
	return swap()
}

// What is noted of a batch that begins is struck out by the next one, as soon as it is
// known that the root has moved on: else the note fills up.
func TestNotesOfBeginningsAreStruckOut(t *testing.T) {
	ctx := t.Context()
	lost := store.Errorf(store.Timeout, "lost")
	for name, end := range map[string]func(f *fixture, swap func() error) error{
		"it comes through": func(_ *fixture, swap func() error) error { return swap() },
		"its answer is lost": func(_ *fixture,
			swap func() error) error {
			return errors.Join(swap(), lost)
		},
		"it is lost":                          func(*fixture, func() error) error { return lost },
		"somebody was faster":                 func(f *fixture, swap func() error) error { f.again(t); return swap() },
		"somebody was faster, and it is lost": func(f *fixture, _ func() error) error { f.again(t); return lost },
	} {
		f := newFixture(t, memstore.New(), 10)
		m := &ending{Maps: mapclient.Of(f.c), end: func(swap func() error) error { return end(f, swap) }}
		x := executor.New(f.s, m, f.id, executor.Options{Gate: pause.NewGate(f.s, mapclient.Of(f.c), 0, time.Now)})
		for i := range 3 {
			x.Add(move.Split(nil, nil, 0, key(2*i+2)))
			require.NoError(t, x.Run(ctx), name)
			rec, err := f.s.Read(ctx, store.Process, []byte("pause"), store.Serial)
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(rec.Blob, []byte(`"epoch":`)), "%s, batch %d: %q", name, i, rec.Blob)
		}
	}
}

// again swaps in the same map once more.
func (f *fixture) again(t *testing.T) {
	root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), partmap.Again(root, mapclient.Of(f.c).Stamp())))
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1000)
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Pace: wait.NewPacer(100), PageRows: 300, Parallel: 1})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		began := time.Now()
		require.NoError(t, x.Run(t.Context()))
		// 1,000 rows are copied, compared and swept over, at 100 a second; the last page
		// is not waited for. What a page lacks is given back.
		require.InDelta(t, 29, time.Since(began).Seconds(), 2)
	})
}

func TestABrokenMapMovesNothing(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, memstore.New(), 10)
	root, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	broken := *root
	broken.Epoch++
	broken.Token = storekit.NewToken()
	broken.Ranges = 7
	require.NoError(t, mapclient.Of(f.c).Swap(ctx, partmap.Change{Old: root.Version(), Next: &broken}))
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{})
	x.Add(move.Split(nil, nil, 0, key(5)))
	err = x.Run(ctx)
	require.ErrorIs(t, err, executor.ErrBrokenMap)
	require.ErrorIs(t, err, store.Corrupt)
	now, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	require.Equal(t, broken.Epoch, now.Epoch, "nothing was changed")
}

func TestAClosingBucketIsOpenedAgain(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, memstore.New(), 10)
	root, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	change, err := mapclient.WithState(root, partmap.Closing, mapclient.Of(f.c).Stamp())
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(f.c).Swap(ctx, change))

	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{})
	x.Add(move.Split(nil, nil, 0, key(5)))
	err = x.Run(ctx)
	require.ErrorIs(t, err, store.Unavailable, "somebody may be deleting it at this moment")

	later := executor.New(f.s, mapclient.Of(f.c), f.id,
		executor.Options{Now: func() time.Time { return time.Now().Add(2 * time.Minute) }})
	later.Add(move.Split(nil, nil, 0, key(5)))
	require.NoError(t, later.Run(ctx))
	require.Len(t, f.ranges(t), 2)
	require.NoError(t, f.b.Put(ctx, key(3), []byte("again")))
}

// Map nodes that are not named any more go after an hour, and no others do: a map
// of many ranges is cut further and put together again, and read all the while.
func TestCollect(t *testing.T) {
	ctx := t.Context()
	const rows = 1000
	f := newFixture(t, memstore.New(), rows)
	now := time.Now()
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Now: func() time.Time { return now }})
	count := func() int {
		ids, err := f.s.ScanNodes(ctx, f.id, store.NodeID{}, 10_000)
		require.NoError(t, err)
		return len(ids)
	}
	for _, parts := range []int{150, 180} {
		goal := move.Goal{Cuts: cuts(rows, parts), Stay: 0}
		x.Add(goal)
		require.NoError(t, x.Run(ctx))
		require.Len(t, f.ranges(t), parts)
	}
	before := count()
	n, _, err := x.Collect(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	now = now.Add(time.Hour)
	// A swap that is still pending has written its nodes already.
	root, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	rs := f.ranges(t)
	edit := partmap.NewEdit(root, mapclient.Of(f.c).Stamp(),
		func(id store.NodeID) ([]byte, error) { return f.s.Node(ctx, f.id, id) })
	_, err = edit.Begin(partmap.Move{Start: rs[7].Start, End: rs[7].End,
		Parts: []partmap.Part{{Start: rs[7].Start, To: store.PartitionID(storekit.NewToken())}}})
	require.NoError(t, err)
	pending, err := edit.Change()
	require.NoError(t, err)
	require.NotEmpty(t, pending.Nodes)
	for _, node := range pending.Nodes {
		require.NoError(t, f.s.WriteNode(ctx, f.id, node.ID, node.Blob))
	}
	n, _, err = x.Collect(ctx)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Equal(t, before+len(pending.Nodes)-n, count())
	f.ranges(t) // still whole
	now = now.Add(9 * time.Hour)
	n, _, err = x.Collect(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "those of the pending swap stay, however old they are")
	require.NoError(t, mapclient.Of(f.c).Swap(ctx, pending))
	require.NoError(t, x.Run(ctx))
	require.Len(t, f.ranges(t), 180)
}

func TestFailpointErrorsEndARun(t *testing.T) {
	f := newFixture(t, memstore.New(), 10)
	errHere := errors.New("here")
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point,
		_ string) error {
		if point == "before copy" {
			return errHere
		}
		return nil
	}})
	x.Add(move.Split(nil, nil, 0, key(5)))
	require.ErrorIs(t, x.Run(t.Context()), errHere)
	y := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{})
	require.NoError(t, y.Run(t.Context()), "another one finds the move in the map")
	require.Len(t, f.ranges(t), 2)
}

// A mover that slept between reading markers and deleting them finds that its
// sweep is over.
func TestASleepingSweeperLooksAtTheMap(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, memstore.New(), 20)
	other := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{})
	slept := false
	var conflict error
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
		Failpoint: func(_ context.Context, point, _ string) error {
			switch point {
			case "after swap copying":
				return f.b.Delete(ctx, key(15)) // leaves a marker
			case "sweep markers read":
				require.False(t, slept)
				slept = true
				return other.Run(ctx)
			}
			return nil
		},
		Observe: func(e executor.Event) {
			if task, sweeps := e.Effect.(move.Task); sweeps && task.Phase == partmap.Settled && e.Err != nil {
				conflict = e.Err
			}
		},
	})
	x.Add(move.Split(nil, nil, 0, key(10)))
	require.NoError(t, x.Run(ctx))
	require.True(t, slept)
	require.ErrorIs(t, conflict, store.Conflict)
	require.Zero(t, x.Progress().Swept)
	require.EqualValues(t, 1, other.Progress().Swept)
}

// A sweep deletes exactly the markers that it has read: what was put a microsecond
// later stays.
func TestASweepLeavesWhatIsNewer(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, memstore.New(), 20)
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point,
		_ string) error {
		switch point {
		case "after swap copying":
			return f.b.Delete(ctx, key(15))
		case "sweep markers read":
			home := store.Partition{Bucket: f.id, ID: f.ranges(t)[1].Partition}
			marker, _, err := f.s.Get(ctx, home, key(15))
			require.NoError(t, err)
			require.True(t, cells.IsMarker(marker.Value))
			return f.s.Put(ctx, home, store.Row{Key: key(15), Value: store.EntryCell([]byte("newer")),
				Timestamp: marker.Timestamp + 1})
		}
		return nil
	}})
	x.Add(move.Split(nil, nil, 0, key(10)))
	require.NoError(t, x.Run(ctx))
	e, err := f.b.Get(ctx, key(15))
	require.NoError(t, err)
	require.Equal(t, "newer", string(e.Value))
}
