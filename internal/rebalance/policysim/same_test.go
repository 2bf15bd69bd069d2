package policysim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// timed is a world in which what a balancer reads takes time: up to 100 ms, which follow from what is read and when. So
// many visits are under way at once, and no two of them go on at the same moment, in no order. It is safe for
// concurrent use.
type timed struct {
	*world
	mu sync.Mutex
	// asked has an element when moves were submitted.
	asked chan struct{}
	// log has what was decided; when it has so many lines, full is called.
	log  []string
	most int
	full func()
}

func newTimed(
	ctx context.Context, s *Scenario, now func() time.Time, sleep func(context.Context, time.Duration) error,
	most int, full func(),
) (*timed, error) {
	w, err := newWorld(ctx, s, now, sleep, nil)
	return &timed{world: w, asked: make(chan struct{}, 1), most: most, full: full}, err
}

// balancer makes a balancer of the world.
func (w *timed) balancer(threads balancer.Threads) *balancer.Balancer {
	o := w.s.options()
	o.Now, o.Threads, o.Decided = w.now, threads, w.decided
	return balancer.New(timedStore{w.t, w}, w, w, w.counts, o)
}

// wait lets the time pass that it takes to read what some bytes name.
func (w *timed) wait(ctx context.Context, what ...[]byte) error {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, w.now().UnixNano())
	for _, b := range what {
		_, _ = h.Write(b)
	}
	x := h.Sum64()
	x ^= x >> 31
	return w.sleep(ctx, time.Duration(1+x%uint64(100*time.Millisecond)))
}

func (w *timed) note(id store.BucketID, format string, args ...any) {
	if w.log = append(w.log, fmt.Sprintf("%v %.4s %s", w.since(), id, fmt.Sprintf(format, args...))); len(w.log) == w.most {
		w.full()
	}
}

// decided is balancer.Options.Decided.
func (w *timed) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.world.decided(id, in, ds)
	w.note(id, "%d moves and %d rows in flight", in.Moves, in.Rows)
	for i := range ds {
		d := &ds[i]
		w.note(id, "%s [%q, %q) at %q: %s; %d rows, %d copied, until %v: %s", d.Kind, in.Ranges[d.From].Start,
			in.Ranges[d.To-1].End, d.Cuts, d.Why, d.Rows, d.Copies, d.Until.UnixNano(), d.Text)
	}
}

// Look implements balancer.Maps.
func (w *timed) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	return w.Load(ctx, id)
}

// Load implements balancer.Maps.
func (w *timed) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	if err := w.wait(ctx, id[:]); err != nil {
		return nil, err
	}
	return w.world.Load(ctx, id)
}

// Submit implements balancer.Mover.
func (w *timed) Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range p.Moves {
		g := &p.Moves[i]
		w.note(id, "move [%q, %q) at %q, %d copied", g.Start, g.End, g.Cuts, g.Copies)
	}
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return w.world.Submit(id, what, p)
}

// Job implements balancer.Mover.
func (w *timed) Job(id string) (scheduler.Job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.world.Job(id)
}

// Held implements balancer.Mover.
func (w *timed) Held(id store.BucketID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.world.Held(id)
}

// InFlight implements balancer.Mover.
func (w *timed) InFlight() (int, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.world.InFlight()
}

// Pace implements balancer.Mover.
func (w *timed) Pace(ctx context.Context, rows int) error {
	w.mu.Lock()
	pause := w.counting.TakeAt(w.now(), rows)
	w.mu.Unlock()
	return w.sleep(ctx, pause)
}

// timedStore is a balancer's view of the store of a world.
type timedStore struct {
	*tally
	w *timed
}

// Slice implements store.Rows.
func (s timedStore) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if err := s.w.wait(ctx, p.ID[:], b.Start); err != nil {
		return store.Page{}, err
	}
	return s.tally.Slice(ctx, p, b, o)
}

// Scan implements store.Registers.
func (s timedStore) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	if err := s.w.wait(ctx, after); err != nil {
		return nil, err
	}
	return s.tally.Scan(ctx, t, after, limit)
}

// simulated plays a scenario as simulations do: for some time, or up to so many lines of what was decided.
func simulated(t *testing.T, s *Scenario, until time.Duration, most int) ([]string, balancer.Status) {
	threads := balancer.NewCoroutines(begin)
	ctx, stop := context.WithCancel(t.Context())
	defer threads.Settle()
	defer stop()
	w, err := newTimed(ctx, s, threads.Now, threads.Sleep, most, stop)
	require.NoError(t, err)
	b := w.balancer(threads)
	if _, err = w.play(ctx, threads, b.Run, until); len(w.log) < most {
		require.NoError(t, err)
	}
	return w.log[:min(len(w.log), most)], b.Status()
}

// live plays it with a balancer as programs run it, with goroutines and timers.
func live(t *testing.T, s *Scenario, until time.Duration, most int) (log []string, status balancer.Status) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		ctx, stop := context.WithCancel(t.Context())
		now := func() time.Time { return time.Now().UTC().Round(0) }
		w, err := newTimed(ctx, s, now, wait.Sleep, most, stop)
		require.NoError(t, err)
		b := w.balancer(nil)
		var work sync.WaitGroup
		work.Go(func() {
			if wait.Sleep(ctx, s.firstLook()) == nil {
				_ = b.Run(ctx)
			}
		})
		for end := begin.Add(until); ctx.Err() == nil; {
			synctest.Wait() // what the balancer does now comes first
			w.mu.Lock()
			if err := w.happen(ctx); ctx.Err() == nil {
				require.NoError(t, err)
			}
			next := w.next()
			w.mu.Unlock()
			if next.IsZero() || next.After(end) {
				if next = end; !now().Before(end) {
					stop()
				}
			}
			select {
			case <-time.After(next.Sub(now())):
			case <-w.asked:
			case <-ctx.Done():
			}
		}
		work.Wait()
		log, status = w.log[:min(len(w.log), most)], b.Status()
	})
	return log, status
}

// A balancer in a simulation decides what it decides in a program, at the same moments: it is the same loop, and what a
// program does at once does not change what is decided.
func TestSimulationsDecideAsPrograms(t *testing.T) {
	// Of long scenarios the beginning is played, and large ones are made smaller.
	long, lines, count, ranges := 12*time.Hour, 2_500, 200, 300
	if os.Getenv(variable) != "" {
		long, lines, count, ranges = 24*time.Hour, 20_000, 1000, 2000
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, err := Builtin(name)
			require.NoError(t, err)
			for i := range s.Tenants {
				x := &s.Tenants[i]
				x.Count, x.Start.Ranges = min(x.Count, count), min(x.Start.Ranges, ranges)
			}
			until := min(long, s.end()) + time.Second/2
			want, status := simulated(t, s, until, lines)
			got, programs := live(t, s, until, lines)
			require.NotEmpty(t, want)
			for i := range want {
				require.Less(t, i, len(got), "a simulation goes on: %s", want[i])
				require.Equal(t, want[i], got[i], "line %d of %d", i, len(want))
			}
			require.Len(t, got, len(want), "a program goes on")
			if len(want) < lines {
				require.Equal(t, status.Decided, programs.Decided)
				require.Equal(t, status.Recounts, programs.Recounts)
			}
			t.Logf("%d lines", len(want))
		})
	}
}
