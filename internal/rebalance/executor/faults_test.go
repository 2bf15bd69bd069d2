package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// The fault matrix: a bucket goes through moves of every kind, and in each run one
// call of the store fails: every call of every operation in turn, in each way in which
// it may fail. What the executor reports as done must have been done. In the end, if
// necessary after another executor took over, the layout is the one that was wanted,
// every row is there and no other, no marker is left, and fsck finds nothing.

// retried are the operations that the executor repeats by itself: one lost answer
// does not make it start an effect again.
func retried(op faultstore.Op) bool {
	switch op {
	case faultstore.Put, faultstore.Delete, faultstore.Remove, faultstore.Slice, faultstore.DeleteNode:
		return true
	}
	return false
}

// course is a bucket and what happens to it.
type course struct {
	name string
	// open makes the bucket; rounds are the goals, one round after the other, and
	// want the cuts in the end.
	open   func(t *testing.T, s store.Store) *fixture
	rounds []func(f *fixture, t *testing.T) []move.Goal
	want   []string
	// stale makes every batch too old to be written as it was read.
	stale bool
	// operations that must be among those that failed.
	calls []faultstore.Op
	// failpoint, if set, is asked at each one; stops says which errors of Run come of it.
	failpoint func(point string) error
	stops     func(err error) bool
}

const courseRows = 40

// longCuts are so long that the root has no room for them.
func longCuts() (cuts [][]byte) {
	for i := range 12 {
		cuts = append(cuts, append(key(i), strings.Repeat("-", 400)...))
	}
	return cuts
}

func courses() []course {
	fixed := func(goals ...move.Goal) func(*fixture, *testing.T) []move.Goal {
		return func(*fixture, *testing.T) []move.Goal { return goals }
	}
	small := course{
		name: "Moves",
		open: func(t *testing.T, s store.Store) *fixture { return newFixtureIn(t, s, courseRows) },
		rounds: []func(*fixture, *testing.T) []move.Goal{
			fixed(move.Split(nil, nil, 1, key(10), key(20), key(30))),
			func(f *fixture, t *testing.T) []move.Goal {
				for _, rg := range f.ranges(t) {
					if string(rg.Start) == string(key(30)) {
						return []move.Goal{move.Merge(nil, key(20)), move.Refresh(&rg)}
					}
				}
				return []move.Goal{move.Merge(nil, key(20))} // it has been cut no more, or not yet
			},
		},
		want: []string{string(key(20)), string(key(30))},
		calls: []faultstore.Op{
			faultstore.Read, faultstore.Swap, faultstore.Slice, faultstore.Put, faultstore.Get, faultstore.Remove,
			faultstore.Delete,
		},
	}
	stale := small
	stale.name, stale.stale = "StaleBatches", true
	stale.calls = []faultstore.Op{faultstore.Get}
	large := course{
		name: "LeftBehindWithNodes",
		open: func(t *testing.T, s store.Store) *fixture {
			f := newFixtureOf(t, s, longCuts()...)
			root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
			require.NoError(t, err)
			require.NotZero(t, root.Height, "the map needs nodes")
			stamp := mapclient.Of(f.c).Stamp()
			stamp.Now = stamp.Now.Add(-time.Hour)
			change, err := mapclient.WithState(root, partmap.Closing, stamp)
			require.NoError(t, err)
			require.NoError(t, f.b.Put(t.Context(), key(3), []byte("value 3")))
			require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
			return f
		},
		rounds: []func(*fixture, *testing.T) []move.Goal{fixed(move.Merge(longCuts()[3], longCuts()[5]))},
		calls: []faultstore.Op{faultstore.Read, faultstore.Swap, faultstore.Node, faultstore.WriteNode,
			faultstore.ScanNodes, faultstore.DeleteNode},
	}
	for i, cut := range longCuts() {
		if i != 4 {
			large.want = append(large.want, string(cut))
		}
	}
	return []course{small, stale, large}
}

// run is one run of a course.
type run struct {
	*course
	t      *testing.T
	f      *fixture
	faults *faultstore.Faults
	faulttest.Case

	mu     sync.Mutex
	now    time.Duration // of a stale course: it goes on with each look
	failed []executor.Event
	want   map[string]string
	done   map[string]bool // disturbances
}

// run runs a course, and returns how many calls there were of each operation.
func (c *course) run(t *testing.T, fail faulttest.Case) map[faultstore.Op]int {
	x := &run{course: c, t: t, Case: fail, want: map[string]string{}, done: map[string]bool{}}
	ctx := t.Context()
	s, faults := fail.Store(memstore.New())
	x.faults = faults
	x.f = c.open(t, s)
	for e, err := range x.f.b.All(ctx, listing.Query{}) {
		if err != nil { // it is closing
			x.want[string(key(3))] = "value 3"
			break
		}
		x.want[string(e.Key)] = string(e.Value)
	}
	faults.Enable(true)
	for round := range c.rounds {
		x.round(ctx, round)
	}
	x.collect(ctx)
	faults.Enable(false)
	calls := map[faultstore.Op]int{}
	for _, op := range c.calls {
		calls[op] = faults.Counts(op).Calls
	}
	require.NoError(t, faults.Flush(ctx))
	x.check(ctx)
	require.NoError(t, s.Close())
	return calls
}

// quietly runs f without faults.
func (x *run) quietly(f func()) {
	x.faults.Enable(false)
	defer x.faults.Enable(true)
	f()
}

func (x *run) options(round int) executor.Options {
	o := executor.Options{
		PageRows: 10, BatchRows: 4, Writers: 1, Parallel: 1,
		Observe: func(e executor.Event) {
			x.mu.Lock()
			defer x.mu.Unlock()
			if e.Err != nil {
				x.failed = append(x.failed, e)
			}
		},
		Failpoint: func(ctx context.Context, point, _ string) error {
			x.disturb(ctx, round, point)
			if x.failpoint != nil {
				return x.failpoint(point)
			}
			return nil
		},
	}
	if x.stale {
		o.WriteTimeout = 1
		o.Now = func() time.Time {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.now += time.Millisecond
			return time.Now().Add(x.now)
		}
	}
	return o
}

// round brings the goals of a round to their end.
func (x *run) round(ctx context.Context, round int) {
	t := x.t
	before, ended := faulttest.Injected(x.faults), false
	for try := 0; ; try++ {
		require.Less(t, try, 3, "it does not end")
		e := executor.New(x.f.s, mapclient.Of(x.f.c), x.f.id, x.options(round))
		x.quietly(func() { e.Add(x.rounds[round](x.f, t)...) })
		err := e.Run(ctx)
		if err == nil {
			break
		}
		ended = true
		if x.stops != nil {
			require.True(t, x.stops(err), "%v", err)
			continue
		}
		require.ErrorContains(t, err, faultstore.ErrInjected.Error()) // a finding of the map's is text
		require.ErrorIs(t, err, store.Corrupt, "only what is damaged ends a run")
		require.Equal(t, store.Corrupt, x.Way.Kind)
		require.Greater(t, faulttest.Injected(x.faults), before)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch fresh := faulttest.Injected(x.faults) - before; {
	case fresh == 0 && !ended:
		require.Empty(t, x.failed)
	case fresh == 0:
	case x.Way.Passing():
		if retried(x.Op) {
			require.Empty(t, x.failed, "it is repeated")
		}
	case x.Way.Kind == store.Corrupt:
		require.True(t, ended, "damage was passed over")
	}
	for _, e := range x.failed {
		if x.stops == nil && (!ended || !errors.Is(e.Err, context.Canceled)) { // but for what went on beside it
			require.ErrorContains(t, e.Err, faultstore.ErrInjected.Error())
		}
	}
	x.failed = nil
}

// disturb is what clients do meanwhile: one deletes in the middle of a move, another
// whose lease ended writes to sources that have been copied, and deletes there.
func (x *run) disturb(ctx context.Context, round int, point string) {
	t := x.t
	if point != "after swap copying" && point != "before swap verifying" { // swaps are done one by one
		return
	}
	ctx = context.WithoutCancel(ctx) // these are clients, who do not end with the mover
	if x.done[fmt.Sprint(round, point)] {
		return
	}
	x.done[fmt.Sprint(round, point)] = true
	switch point {
	case "after swap copying":
		x.quietly(func() {
			for i := 1 + round; i < courseRows; i += 6 {
				if x.want[string(key(i))] != "" {
					require.NoError(t, x.f.b.Delete(ctx, key(i)))
					delete(x.want, string(key(i)))
				}
			}
		})
	case "before swap verifying":
		x.quietly(func() {
			for _, rg := range x.f.ranges(t) {
				if rg.Phase != partmap.Copying {
					continue
				}
				k := fmt.Sprintf("%s!late-%d", rg.Start, round)
				late := store.Row{Key: []byte(k), Value: store.EntryCell([]byte("late")),
					Timestamp: store.Timestamp(time.Now().UnixMicro())}
				source := store.Partition{Bucket: x.f.id, ID: rg.Partition}
				within := store.Bounds{Start: rg.Start, End: rg.End}
				page, err := x.f.s.Slice(ctx, source, within, store.SliceOptions{Limit: 10, Timestamps: true})
				require.NoError(t, err)
				for _, row := range page.Rows { // of those that were copied one is deleted
					if gone := string(row.Key); x.want[gone] != "" {
						require.NoError(t, x.f.s.Delete(ctx, source, row.Key, row.Timestamp))
						delete(x.want, gone)
						break
					}
				}
				require.NoError(t, x.f.s.Put(ctx, source, late))
				x.want[k] = "late"
			}
		})
	}
}

// collect collects the nodes that were left; what it says has to be so.
func (x *run) collect(ctx context.Context) {
	t := x.t
	unnamed := 0
	x.quietly(func() { unnamed = len(x.nodes(ctx)) - len(x.named(ctx)) })
	e := executor.New(x.f.s, mapclient.Of(x.f.c), x.f.id, x.options(len(x.rounds)))
	for pass := range 2 {
		for try := 0; ; try++ {
			require.Less(t, try, 8, "it does not end")
			before := faulttest.Injected(x.faults)
			gone, waiting, err := e.Collect(ctx)
			if err != nil && x.stops != nil {
				require.True(t, x.stops(err), "%v", err)
				continue
			}
			if err != nil {
				require.ErrorIs(t, err, faultstore.ErrInjected)
				require.Greater(t, faulttest.Injected(x.faults), before)
				if x.Op != faultstore.DeleteNode { // of those some may have gone
					require.Zero(t, gone+waiting)
				}
				continue
			}
			if fresh := faulttest.Injected(x.faults) - before; fresh > 0 {
				require.Equal(t, faultstore.DeleteNode, x.Op, "an error was dropped")
			}
			left := 0
			x.quietly(func() { left = len(x.nodes(ctx)) - len(x.named(ctx)) })
			require.Equal(t, left, waiting)
			if pass == 0 {
				require.Zero(t, gone)
				require.Equal(t, unnamed, waiting)
			} else {
				require.Zero(t, waiting)
			}
			break
		}
		time.Sleep(time.Hour)
	}
}

func (x *run) nodes(ctx context.Context) []store.NodeID {
	ids, err := x.f.s.ScanNodes(ctx, x.f.id, store.NodeID{}, 10_000)
	require.NoError(x.t, err)
	return ids
}

// named are the nodes of a map of one level.
func (x *run) named(ctx context.Context) []partmap.Child {
	root, err := mapclient.Of(x.f.c).Load(ctx, x.f.id)
	require.NoError(x.t, err)
	require.LessOrEqual(x.t, int(root.Height), 1)
	return root.Children
}

func (x *run) check(ctx context.Context) {
	t := x.t
	var cuts []string
	homes := map[store.PartitionID]bool{}
	for _, rg := range x.f.ranges(t) {
		require.Equal(t, partmap.Settled, rg.Phase)
		require.False(t, rg.SweepPending)
		homes[rg.Partition] = true
		if len(rg.Start) > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	require.Equal(t, x.course.want, cuts)
	got, rows := map[string]string{}, 0
	for e, err := range x.f.b.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		got[string(e.Key)] = string(e.Value)
	}
	require.Equal(t, x.want, got)
	for home := range homes {
		rows += x.f.rowsOf(t, home)
	}
	require.Equal(t, len(got), rows, "markers are left, or a key is in two partitions")
	report := func(f repair.Finding) { t.Errorf("fsck: %s", f) }
	_, err := repair.New(x.f.s, x.f.c, repair.Options{Report: report}).All(ctx)
	require.NoError(t, err)
}

func TestEachCallFails(t *testing.T) {
	for _, c := range courses() {
		t.Run(c.name, func(t *testing.T) {
			var calls map[faultstore.Op]int
			synctest.Test(t, func(t *testing.T) { calls = c.run(t, faulttest.Case{}) })
			for _, op := range c.calls {
				require.NotZero(t, calls[op], op)
			}
			faulttest.Each(t, calls, func(fail faulttest.Case) {
				synctest.Test(t, func(t *testing.T) { c.run(t, fail) })
			})
		})
	}
}
