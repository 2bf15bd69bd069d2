package repair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestNothingIsWrongBetweenAnyTwoSteps: every store call of movers, writers and
// those who create and delete buckets waits until it is let go, some of them
// between any two calls of a check. So it meets all of them in the middle of what
// they do, and still finds no problem; and its repairs do no harm.
func TestNothingIsWrongBetweenAnyTwoSteps(t *testing.T) {
	var sum seen
	tried := seed.Each(t, race.Fewer(60), func(seed uint64) bool {
		synctest.Test(t, func(t *testing.T) { stepping(t, seed, &sum) })
		return true
	})
	t.Logf("%+v", sum)
	if tried > 1 {
		require.Positive(t, sum.infos[repair.Moving])
		require.Positive(t, sum.infos[repair.SweepPending])
	}
}

// seen says what the runs met.
type seen struct {
	steps, checks int
	infos         map[repair.Kind]int
}

type checking struct{}

// TestNothingIsWrongAcrossWholeMoves puts a whole move, and half of one with the
// other half soon after it, between any two calls of a check.
func TestNothingIsWrongAcrossWholeMoves(t *testing.T) {
	for _, c := range []struct {
		cuts, gap int
		stop      string
	}{
		{0, 0, "before swap copying"}, {0, 1, "before swap copying"}, {0, 2, "before swap copying"}, {0, 3,
			"before swap verifying"},
		{300, 0, "before swap copying"}, {300, 1, "before swap verifying"}, // a map with segments
	} {
		calls := 1
		var sample faulttest.Sample // the first is never left out
		for at := 1; at <= calls; at++ {
			if !sample.Skips() {
				synctest.Test(t, func(t *testing.T) { calls = crossing(t, c.cuts, at, at+c.gap, c.stop) })
			}
			if t.Failed() {
				return
			}
			if at == 60 {
				at = max(at, calls-40) // in between it reads empty partitions, one like the other
			}
		}
		t.Logf("%+v: checks of %d calls", c, calls)
	}
}

// crossing checks once. Before one call of the check a move begins, and markers
// are written; before a later one it ends, and what it leaves is collected. It
// returns how many calls there were.
func crossing(t *testing.T, cuts, from, to int, stop string) (calls int) {
	f := &fixture{t: t}
	g := &gate{open: true}
	half := func(stop string, goals ...move.Goal) {
		x := executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{CollectAfter: time.Nanosecond,
			Failpoint: func(_ context.Context, point, _ string) error {
				if point == stop {
					return errKilled
				}
				return nil
			}})
		x.Add(goals...)
		if err := x.Run(ctx); stop == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errKilled)
		}
		for range 2 {
			time.Sleep(time.Microsecond)
			_, _, err := x.Collect(ctx)
			require.NoError(t, err)
		}
	}
	f.s = &gated{memstore.New(), g}
	var err error
	f.c, err = listing.New(f.s, listing.Options{})
	require.NoError(t, err)
	all := [][]byte{key(10), key(20)}
	for i := range cuts {
		all = append(all, fmt.Appendf(nil, "x%06d", i))
	}
	require.NoError(t, f.c.CreateBucket(ctx, "b", all...))
	f.b = f.id("b")
	for i := range 40 {
		require.NoError(t, f.c.Bucket("b").Put(ctx, key(i), []byte("value")))
	}
	var last []byte
	if cuts > 0 {
		last = all[2]
	}
	g.call = func() {
		calls++
		if calls == from {
			half(stop, move.Merge(nil, key(20)), move.Split(key(20), last, 0, key(25), key(30)))
			require.NoError(t, f.c.Bucket("b").Delete(ctx, key(5)))
			require.NoError(t, f.c.Bucket("b").Delete(ctx, key(28)))
		}
		if calls == to {
			half("")
		}
	}
	o := repair.Options{Parallel: 1, PageRows: 7, Patience: time.Second, Report: func(x repair.Finding) {
		if x.Severity != repair.Info {
			t.Errorf("%d cuts, a move from call %d to call %d: %s", cuts, from, to, x)
		}
	}}
	_, err = repair.New(f.s, f.c, o).All(context.WithValue(ctx, checking{}, true))
	require.NoError(t, err)
	return calls
}

// gate holds the store calls of all but the checker.
type gate struct {
	r *rand.Rand

	// call is called for each call of the checker instead, if not nil.
	call func()

	mu      sync.Mutex
	open    bool
	waiting []chan struct{}
	steps   int
}

// before is called before each store call.
func (g *gate) before(ctx context.Context) {
	if ctx.Value(checking{}) == nil {
		g.mu.Lock()
		if g.open {
			g.mu.Unlock()
			return
		}
		ch := make(chan struct{})
		g.waiting = append(g.waiting, ch)
		g.mu.Unlock()
		<-ch
		return
	}
	if g.call != nil {
		g.call()
		return
	}
	g.step([]int{0, 0, 1, 1, 2, 5, 20}[g.r.IntN(7)])
}

// step lets so many calls go, one after the other.
func (g *gate) step(n int) {
	for range n {
		synctest.Wait()
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.mu.Unlock()
			return
		}
		i := g.r.IntN(len(g.waiting))
		ch := g.waiting[i]
		g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
		g.steps++
		g.mu.Unlock()
		close(ch)
	}
	synctest.Wait()
}

// free lets everything go from now on.
func (g *gate) free(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
	for _, ch := range g.waiting {
		close(ch)
	}
	g.waiting = nil
}

func stepping(t *testing.T, seed uint64, sum *seen) {
	r := rand.New(rand.NewPCG(seed, 1))
	g := &gate{r: r, open: true}
	f := &fixture{t: t, s: &gated{memstore.New(), g}}
	var err error
	f.c, err = listing.New(f.s, listing.Options{})
	require.NoError(t, err)
	const n = 40
	var cuts [][]byte
	for i := 0; i < rows; i += rows / []int{2, 300}[r.IntN(2)] { // a small map, and one with segments
		cuts = append(cuts, key(i))
	}
	require.NoError(t, f.c.CreateBucket(ctx, "b", cuts...))
	f.b = f.id("b")
	for i := range n {
		require.NoError(t, f.c.Bucket("b").Put(ctx, key(i*rows/n), []byte("value")))
	}

	over, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	begin := func(number uint64, what func(r *rand.Rand) error) {
		r := rand.New(rand.NewPCG(seed, number))
		wg.Go(func() {
			for over.Err() == nil {
				if err := what(r); err != nil && over.Err() == nil {
					t.Errorf("EVENKEEL_SEED=%d: worker %d: %v", seed, number, err)
					return
				}
			}
		})
	}
	g.free(false)
	for w := range uint64(2) {
		b, mine := f.c.Bucket("b"), map[int]bool{}
		begin(2+w, func(r *rand.Rand) error {
			i := r.IntN(n)
			k := fmt.Appendf(key(i*rows/n), "-%d", w)
			_, err := b.Get(ctx, k)
			if mine[i] != (err == nil) || err != nil && !errors.Is(err, listing.ErrNotFound) {
				return fmt.Errorf("%s: %w, should be there: %v", k, err, mine[i])
			}
			if mine[i] = r.IntN(2) == 0; mine[i] {
				return b.Put(ctx, k, []byte("own"))
			}
			return b.Delete(ctx, k)
		})
	}
	begin(4, func(r *rand.Rand) error {
		var points atomic.Int64
		kill := int64(r.IntN(80))
		x := executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{
			PageRows: 5, BatchRows: 3, CollectAfter: time.Nanosecond, Parallel: 1, Writers: 1,
			Failpoint: func(context.Context, string, string) error {
				if points.Add(1) == kill {
					return errKilled
				}
				return nil
			},
		})
		x.Add(f.goals(f.b, r)...)
		err := x.Run(ctx)
		for range 2 {
			time.Sleep(time.Microsecond)
			_, _, cerr := x.Collect(ctx)
			err = errors.Join(err, cerr)
		}
		if errors.Is(err, errKilled) {
			return nil
		}
		return err
	})
	begin(5, func(r *rand.Rand) error {
		name := fmt.Sprintf("temporary-%d", r.IntN(2))
		if err := f.c.CreateBucket(ctx, name); err != nil {
			return err
		}
		return f.c.DeleteBucket(ctx, name)
	})
	check := func() {
		sum.checks++
		o := repair.Options{
			Repair: r.IntN(2) == 0, PageRows: []int{3, 1000}[r.IntN(2)], Parallel: 1,
			Sleep: func(context.Context, time.Duration) error { g.step(60); return nil },
		}
		o.Report = func(x repair.Finding) {
			if x.Severity != repair.Info {
				t.Errorf("EVENKEEL_SEED=%d: %s", seed, x)
			}
			if sum.infos == nil {
				sum.infos = map[repair.Kind]int{}
			}
			sum.infos[x.Kind]++
		}
		if _, err := repair.New(f.s, f.c, o).All(context.WithValue(ctx, checking{}, true)); err != nil {
			t.Errorf("EVENKEEL_SEED=%d: %v", seed, err)
		}
	}
	for range 6 {
		check()
		g.step(r.IntN(200))
	}
	cancel()
	g.free(true)
	wg.Wait()
	require.NoError(t, executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{}).Run(ctx))
	check()
	sum.steps += g.steps
	for i := range n {
		_, err := f.c.Bucket("b").Get(ctx, key(i*rows/n))
		require.NoError(t, err, "EVENKEEL_SEED=%d: %s", seed, key(i*rows/n))
	}
}

// gated waits before each call.
type gated struct {
	memstore.Store
	g *gate
}

func (s *gated) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.g.before(ctx)
	return s.Store.Put(ctx, p, rows...)
}

func (s *gated) Delete(ctx context.Context, p store.Partition, k []byte, ts store.Timestamp) error {
	s.g.before(ctx)
	return s.Store.Delete(ctx, p, k, ts)
}

func (s *gated) Get(ctx context.Context, p store.Partition, k []byte) (store.Row, bool, error) {
	s.g.before(ctx)
	return s.Store.Get(ctx, p, k)
}

func (s *gated) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page,
	error) {
	s.g.before(ctx)
	return s.Store.Slice(ctx, p, b, o)
}

func (s *gated) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.g.before(ctx)
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *gated) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	s.g.before(ctx)
	return s.Store.Partitions(ctx, after, limit)
}

func (s *gated) Read(ctx context.Context, t store.Table, k []byte, l store.Level) (store.Record, error) {
	s.g.before(ctx)
	return s.Store.Read(ctx, t, k, l)
}

func (s *gated) Swap(ctx context.Context, t store.Table, k []byte, old store.Version, next store.Record) error {
	s.g.before(ctx)
	return s.Store.Swap(ctx, t, k, old, next)
}

func (s *gated) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	s.g.before(ctx)
	return s.Store.Scan(ctx, t, after, limit)
}

func (s *gated) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	s.g.before(ctx)
	return s.Store.WriteNode(ctx, b, id, blob)
}

func (s *gated) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	s.g.before(ctx)
	return s.Store.Node(ctx, b, id)
}

func (s *gated) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	s.g.before(ctx)
	return s.Store.DeleteNode(ctx, b, id)
}

func (s *gated) ScanNodes(ctx context.Context, b store.BucketID, after store.NodeID, limit int) ([]store.NodeID,
	error) {
	s.g.before(ctx)
	return s.Store.ScanNodes(ctx, b, after, limit)
}
