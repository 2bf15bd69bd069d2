package executor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// counting counts the calls of a store by what they do.
type counting struct {
	store.Store
	mu    sync.Mutex
	calls map[string]int
	gate  func(store.Partition) // before each slice
}

func newCounting() *counting { return &counting{Store: memstore.New(), calls: map[string]int{}} }

func (s *counting) call(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[what]++
}

// reset begins to count anew.
func (s *counting) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.calls)
}

func (s *counting) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for what, n := range s.calls {
		out[what] = n
	}
	return out
}

func (s *counting) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.call("get")
	return s.Store.Get(ctx, p, key)
}

func (s *counting) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page,
	error) {
	s.call("slice")
	if s.gate != nil {
		s.gate(p)
	}
	return s.Store.Slice(ctx, p, b, o)
}

func (s *counting) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.call("put")
	return s.Store.Put(ctx, p, rows...)
}

func (s *counting) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.call("delete")
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *counting) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.call("remove")
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *counting) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	s.call("node")
	return s.Store.Node(ctx, b, id)
}

func (s *counting) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	s.call("read")
	return s.Store.Read(ctx, t, key, l)
}

// What a move costs: the source is read page by page for the copy, both sides to compare them, and
// the destination for the sweep; three times a read finds nothing behind the last full page, and
// twice the highest row is read. No row is read alone, unless something came late. The source gets
// a note before it is removed.
func TestCallsOfAMove(t *testing.T) {
	const page = 20
	for _, c := range []struct {
		name string
		rows int
		want map[string]int
	}{
		{name: "no rows", want: map[string]int{"slice": 4, "put": 1, "remove": 1}},
		{name: "a page", rows: page, want: map[string]int{"slice": 4 + 3 + 2, "put": 2 + 1, "remove": 1}},
		{name: "pages", rows: 15 * page, want: map[string]int{"slice": 4*15 + 3 + 2, "put": 30 + 1, "remove": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCounting()
			f := newFixture(t, s, c.rows)
			x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{PageRows: page, BatchRows: page / 2, Writers: 1})
			rg := f.ranges(t)[0]
			x.Add(move.Refresh(&rg))
			s.reset()
			require.NoError(t, x.Run(t.Context()))
			got := s.counts()
			delete(got, "read")
			require.Equal(t, c.want, got)
		})
	}
}

// Two pages are compared at once, and the next one is read meanwhile, however many writers there are.
func TestPagesAreComparedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounting()
		f := newFixture(t, s, 60)
		rg := f.ranges(t)[0]
		held := make(chan struct{})
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{
			PageRows: 5, Writers: 10,
			Failpoint: func(_ context.Context, point, _ string) error {
				if point == "before compare" {
					s.reset()
					s.gate = func(p store.Partition) {
						if p.ID != rg.Partition {
							<-held
						}
					}
				}
				return nil
			},
		})
		x.Add(move.Refresh(&rg))
		done := make(chan error)
		go func() { done <- x.Run(t.Context()) }()
		synctest.Wait()
		require.Equal(t, 2+3, s.counts()["slice"], "of the destination, and of the source")
		close(held)
		require.NoError(t, <-done)
	})
}

// While a writer waits, the reader of a copy has one more batch ready and the next page read.
func TestTheReaderRunsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounting()
		f := newFixture(t, s, 60)
		held := make(chan struct{})
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{
			PageRows: 5, BatchRows: 5, Writers: 1,
			Failpoint: func(_ context.Context, point, _ string) error {
				switch point {
				case "before copy":
					s.reset()
				case "copy batch":
					<-held
				}
				return nil
			},
		})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		done := make(chan error)
		go func() { done <- x.Run(t.Context()) }()
		synctest.Wait()
		require.Equal(t, 3, s.counts()["slice"])
		close(held)
		require.NoError(t, <-done)
	})
}

// No write has more than 500 rows, whatever the options say.
func TestBatchRowsHaveALimit(t *testing.T) {
	s := &sizes{Store: memstore.New()}
	f := newFixture(t, s, 1200)
	x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{BatchRows: 1000})
	s.rows = 0
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	require.Equal(t, 500, s.rows)
}

// The map is read again when all tasks of a phase are done, not after each; and its nodes are
// checked when moves begin, not with each phase.
func TestLooksOfAMove(t *testing.T) {
	looks := func(moved int) (reads, nodes, later int) {
		s := newCounting()
		f := newFixtureOf(t, s, cuts(2500, 2500)...)
		defer func() { require.NoError(t, s.Close()) }()
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
			if point == "after swap marking" {
				nodes = s.counts()["node"]
			}
			return nil
		}})
		rs := f.ranges(t)
		for i := range moved {
			x.Add(move.Refresh(&rs[10+3*i]))
		}
		s.reset()
		require.NoError(t, x.Run(t.Context()))
		got := s.counts()
		return got["read"], nodes, got["node"] - nodes
	}
	reads, nodes, later := looks(1)
	require.Equal(t, []int{22, 10, 4}, []int{reads, nodes, later})
	for _, moved := range []int{2, 9} {
		r, _, _ := looks(moved)
		require.Equal(t, reads, r, "%d ranges", moved)
	}
}

// A goal that is added while a task takes long, by whoever sees another goal end, begins at once;
// and the task is not begun a second time.
func TestGoalsBeginWhileOthersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureOf(t, memstore.New(), key(5))
		defer func() { require.NoError(t, f.s.Close()) }()
		began, copies := make(chan struct{}), map[string]int{}
		met := move.Merge(key(5), nil)
		var mu sync.Mutex
		var x *executor.Executor
		x = executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			Failpoint: func(_ context.Context, point, detail string) error {
				if point == "before copy" {
					mu.Lock()
					copies[detail]++
					mu.Unlock()
					<-began
				}
				return nil
			},
			Observe: func(e executor.Event) {
				switch {
				case e.Kind == executor.GoalMet && e.Goal.Equal(&met):
					x.Add(move.Split(key(5), nil, 0, key(7)))
				case e.Kind == executor.GoalBegun && string(e.Goal.Start) == string(key(5)):
					close(began)
				}
			},
		})
		x.Add(move.Split(nil, key(5), 0, key(2)))
		done := make(chan error)
		go func() { done <- x.Run(t.Context()) }()
		synctest.Wait()
		x.Add(met)
		require.NoError(t, <-done)
		require.Len(t, f.ranges(t), 4)
		require.Len(t, copies, 2)
		for what, n := range copies {
			require.Equal(t, 1, n, what)
		}
	})
}

// When one effect ends the executor, those beside it are told to end.
func TestARunEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureOf(t, memstore.New(), key(5))
		defer func() { require.NoError(t, f.s.Close()) }()
		var n atomic.Int64
		errHere := errors.New("here")
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			Failpoint: func(ctx context.Context, point, _ string) error {
				if point != "before copy" {
					return nil
				}
				if n.Add(1) == 2 {
					return errHere
				}
				<-ctx.Done()
				return nil
			},
		})
		for _, rg := range f.ranges(t) {
			x.Add(move.Refresh(&rg))
		}
		require.ErrorIs(t, x.Run(t.Context()), errHere)
		require.EqualValues(t, 2, n.Load())
	})
}

// A pause is a reason to end for goals that wait only; what a closing bucket makes wait is not
// due to the pause.
func TestPausedWithoutGoals(t *testing.T) {
	f := newFixture(t, memstore.New(), 10)
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{})
	x.Hold(&pause.Pause{Why: "a test"})
	require.NoError(t, x.Run(t.Context()))
	x.Add(move.Split(nil, nil, 0, key(5)))
	var paused *pause.Error
	require.ErrorAs(t, x.Run(t.Context()), &paused)
	root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	change, err := mapclient.WithState(root, partmap.Closing, mapclient.Of(f.c).Stamp())
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
	err = x.Run(t.Context())
	require.ErrorIs(t, err, store.Unavailable)
	require.False(t, errors.As(err, &paused))
	require.ErrorContains(t, err, "is closing: its goals have to wait")
}

// swaps is a map client whose swaps a test decides on, by their number.
type swaps struct {
	executor.Maps
	n  int
	on func(n int, swap func() error) error
}

func (m *swaps) Swap(ctx context.Context, change partmap.Change) error {
	m.n++
	return m.on(m.n, func() error { return m.Maps.Swap(ctx, change) })
}

// After a success the pauses begin anew: each of two swaps fails once, and both are made again
// after the shortest pause.
func TestPausesAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 10)
		m := &swaps{Maps: mapclient.Of(f.c), on: func(n int, swap func() error) error {
			if n == 1 || n == 3 {
				return store.Errorf(store.Unavailable, "away")
			}
			return swap()
		}}
		x := executor.New(f.s, m, f.id, executor.Options{})
		x.Add(move.Split(nil, nil, 0, key(5)))
		began := time.Now()
		require.NoError(t, x.Run(t.Context()))
		require.InDelta(t, 9*time.Millisecond, time.Since(began), float64(time.Millisecond), "5 ms less 20 % at most")
		require.Equal(t, 6+2, m.n, "each phase is a swap")
	})
}

// A swap whose answer was lost is told from one that was lost: the move has begun once.
func TestSwapsOfUnknownOutcome(t *testing.T) {
	lost := store.Errorf(store.Timeout, "lost")
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memstore.New(), 10)
			m := &swaps{Maps: mapclient.Of(f.c), on: func(n int, swap func() error) error {
				switch {
				case n > 1:
					return swap()
				case applied:
					require.NoError(t, swap())
				}
				return lost
			}}
			begun, failed := 0, 0
			x := executor.New(f.s, m, f.id, executor.Options{Observe: func(e executor.Event) {
				if e.Kind == executor.GoalBegun {
					begun++
				}
				if e.Err != nil {
					require.ErrorIs(t, e.Err, lost)
					failed++
				}
			}})
			x.Add(move.Split(nil, nil, 0, key(5)))
			require.NoError(t, x.Run(t.Context()))
			require.Equal(t, 1, begun)
			require.Equal(t, map[bool]int{true: 0, false: 1}[applied], failed)
			require.Equal(t, map[bool]int{true: 6, false: 7}[applied], m.n)
		})
	}
}

// What is noted of a batch stays as long as its swap may still come through, also when another
// bucket's batch begins.
func TestNotesOfLostSwapsStay(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, memstore.New(), 10)
	gate := pause.NewGate(f.s, mapclient.Of(f.c), 0, time.Now)
	var note []byte
	m := &swaps{Maps: mapclient.Of(f.c), on: func(n int, swap func() error) error {
		if n == 1 {
			return store.Errorf(store.Timeout, "lost")
		}
		return swap()
	}}
	x := executor.New(f.s, m, f.id, executor.Options{Gate: gate, Observe: func(e executor.Event) {
		if e.Err != nil {
			require.NoError(t, gate.Begin(ctx, store.BucketID{9}, 1))
			rec, err := f.s.Read(ctx, store.Process, []byte("pause"), store.Serial)
			require.NoError(t, err)
			note = rec.Blob
		}
	}})
	x.Add(move.Split(nil, nil, 0, key(5)))
	require.NoError(t, x.Run(ctx))
	require.Contains(t, string(note), f.id.String())
	require.Contains(t, string(note), store.BucketID{9}.String())
}

// A map that breaks while moves are made is noticed before the next one begins; a node that can't
// be reached is no damage, and nothing begins without it.
func TestMapsThatBreakLater(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &vanishing{Store: memstore.New()}
			f := newFixtureOf(t, s, cuts(2500, 2500)...)
			defer func() { require.NoError(t, s.Close()) }()
			root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
			require.NoError(t, err)
			last := root.Children[len(root.Children)-1].Node
			reads := 0
			s.before = func(id store.NodeID) {
				if id == last {
					reads++
				}
			}
			gone := false
			var mu sync.Mutex // effects run at once
			var failures []error
			var x *executor.Executor
			x = executor.New(s, mapclient.Of(f.c), f.id, executor.Options{
				Failpoint: func(_ context.Context, point, _ string) error {
					if point == "after swap draining" {
						gone = true
						if !away {
							require.NoError(t, s.DeleteNode(t.Context(), f.id, last))
						}
						x.Add(move.Merge(key(10), key(12)))
					}
					return nil
				},
				Observe: func(e executor.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Err != nil {
						failures = append(failures, e.Err)
					}
				},
			})
			s.lose = func(id store.NodeID) error {
				if gone && away && id == last {
					return store.Errorf(store.Unavailable, "away")
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			x.Add(move.Merge(nil, key(2)))
			err = x.Run(ctx)
			if away {
				require.ErrorIs(t, err, store.Timeout)
			} else {
				require.ErrorIs(t, err, executor.ErrBrokenMap)
			}
			require.NotEmpty(t, failures)
			for _, err := range failures {
				if store.KindOf(err) != store.Timeout { // of what ran beside it, or when the time was over
					require.Equal(t, away, errors.Is(err, store.Unavailable), "%v", err)
				}
			}
			require.Positive(t, reads)
			s.before, s.lose = nil, nil
			now, err := mapclient.Of(f.c).Load(t.Context(), f.id)
			require.NoError(t, err)
			require.Len(t, now.Batches, 1, "the second merge has not begun")
		})
	}
}

// A map of 10,000 ranges is checked as a whole, a larger one where something moves.
func TestLargeMapsAreCheckedInPart(t *testing.T) {
	const ranges = 10_001
	s := &vanishing{Store: memstore.New()}
	f := newFixtureOf(t, s, cuts(ranges, ranges)...)
	defer func() { require.NoError(t, s.Close()) }()
	root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	require.EqualValues(t, ranges, root.Ranges)
	require.NoError(t, s.DeleteNode(t.Context(), f.id, root.Children[len(root.Children)-1].Node))
	x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{})
	x.Add(move.Merge(nil, key(2)))
	require.NoError(t, x.Run(t.Context()))
}

// A map of a newer version ends the executor: no retry helps.
func TestMapsOfANewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 10)
		newer := fmt.Errorf("somewhere: %w", mapcodec.ErrNewerVersion)
		x := executor.New(f.s, unloadable{mapclient.Of(f.c), store.Wrap("load", newer)}, f.id, executor.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, x.Run(ctx), mapcodec.ErrNewerVersion)
		require.Zero(t, time.Since(began))
	})
}

// unloadable is a map client that can't load roots.
type unloadable struct {
	executor.Maps
	err error
}

func (m unloadable) Load(context.Context, store.BucketID) (*partmap.Root, error) { return nil, m.err }

// limits notes how many nodes are listed at once.
type limits struct {
	*counting
	seen map[int]bool
}

func (s *limits) ScanNodes(ctx context.Context, b store.BucketID, after store.NodeID, limit int) ([]store.NodeID,
	error) {
	s.seen[limit] = true
	return s.Store.ScanNodes(ctx, b, after, limit)
}

// Nothing to collect costs next to nothing: a map in its root is not even read; and what is not due
// yet is no event.
func TestCollectOfNothing(t *testing.T) {
	s := &limits{newCounting(), map[int]bool{}}
	f := newFixture(t, s, 10)
	events := 0
	o := executor.Options{Pace: wait.NewPacer(0), Observe: func(executor.Event) { events++ }}
	s.reset()
	gone, waiting, err := executor.New(s, mapclient.Of(f.c), f.id, o).Collect(t.Context())
	require.NoError(t, err)
	require.Zero(t, gone+waiting)
	require.Empty(t, s.counts())
	require.Equal(t, map[int]bool{1000: true}, s.seen)

	s = &limits{newCounting(), map[int]bool{}}
	f = newFixtureOf(t, s, cuts(2500, 2500)...)
	x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{})
	x.Add(move.Merge(nil, key(2)))
	require.NoError(t, x.Run(t.Context()))
	x = executor.New(s, mapclient.Of(f.c), f.id, o)
	for range 2 {
		gone, waiting, err = x.Collect(t.Context())
		require.NoError(t, err)
		require.Zero(t, gone)
		require.Positive(t, waiting)
	}
	require.Zero(t, events)
}
