package policysim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// decided is something that was decided about a bucket.
type decided struct {
	at     time.Time
	bucket store.BucketID
	policy.Decision
}

// record gathers all decisions but "within limits", in an order that does not depend on which bucket came first.
type record []decided

func (r *record) observe(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	for _, d := range ds {
		if d.Why != policy.Within {
			*r = append(*r, decided{in.Now, id, d})
		}
	}
}

func (r record) sorted() record {
	slices.SortStableFunc(r, func(a, b decided) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(string(a.bucket[:]), string(b.bucket[:])))
	})
	return r
}

// live plays a scenario like run, by Balancer.Run with its goroutines: its sleeps are the steps of the world.
func live(t *testing.T, s *Scenario, observe observer) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s, observe)
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var b *balancer.Balancer
		counted := int64(0)
		o := w.options()
		o.Sleep = func(context.Context, time.Duration) error {
			synctest.Wait() // all recounts have ended
			if n := b.Status().Recounts; n > counted {
				counted = n
				return nil
			}
			if w.step == w.steps {
				stop()
				return errors.New("the scenario has ended")
			}
			w.advance()
			return nil
		}
		b = balancer.New(w, w, w, w.counts, o)
		w.advance()
		_ = b.Run(ctx)
		require.NoError(t, b.Status().Round.Err)
	})
}

// The simulator and the live loop decide the same, in every scenario: time, bucket, ranges, kind, cuts, what stays,
// rows, copies and why. What the moves take is not compared: in both they end with the next step.
func TestTheLiveLoopDecidesTheSame(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, _, err := Builtin(name)
			require.NoError(t, err)
			s.Days = min(s.Days, shortened(s))
			var simulated, lived record
			_, err = run(t.Context(), s, simulated.observe)
			require.NoError(t, err)
			live(t, s, lived.observe)
			require.NotEmpty(t, simulated)
			sim, liv := simulated.sorted(), lived.sorted()
			for i := range min(len(sim), len(liv)) {
				require.Equal(t, sim[i], liv[i], "decision %d", i)
			}
			require.Len(t, liv, len(sim))
			kinds := map[policy.Kind]int{}
			for _, d := range sim {
				kinds[d.Kind]++
			}
			t.Logf("%d decisions in %g days: %v", len(sim), s.Days, kinds)
		})
	}
}

// shortened is how many days of a scenario are compared.
func shortened(s *Scenario) float64 {
	if raceDetector {
		return 60 * s.Step.Hours() / 24
	}
	return 120 * s.Step.Hours() / 24
}

// real plays a scenario on a real store, with real maps, counters, moves and recounts, in virtual time. It returns
// how many ranges each bucket has in the end, and the rows that were moved.
func real(t *testing.T, s *Scenario, observe observer) (ranges []int, moved int64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s, observe) // its tenants are what is used of it
		rows, counts := memstore.New(), counter.NewMemory(nil)
		recorder := counter.NewRecorder(counts, counter.RecorderOptions{Every: -1})
		c, err := listing.NewEmbedded(rows, listing.Options{Recorder: recorder})
		require.NoError(t, err)
		defer c.Maps().Close()
		name := func(i int) string { return fmt.Sprintf("bucket-%d", i) }
		for i := range w.buckets {
			require.NoError(t, c.CreateBucket(t.Context(), name(i)))
		}
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		o, begun, step := w.options(), time.Now(), 0
		o.Now, o.Decided = nil, observe
		o.Sleep = func(ctx context.Context, d time.Duration) error {
			time.Sleep(d)
			if now := time.Now(); now.Sub(begun) >= time.Duration(step+1)*s.Step {
				if step++; step > w.steps {
					stop()
					return context.Canceled
				}
				day := now.Sub(begun).Hours() / 24
				for i, b := range w.buckets {
					for range b.owed(s.Step) {
						if key, _ := w.next(b); day >= b.g.From && day <= b.g.To {
							if err := c.Bucket(name(i)).Put(ctx, keyOf(key), make([]byte, 92)); err != nil {
								return err
							}
						}
					}
				}
				return recorder.Flush(ctx)
			}
			return nil
		}
		m := scheduler.New(rows, c.Maps(), scheduler.Options{})
		b := balancer.New(rows, c.Maps(), m, counts, o)
		work.Go(func() { _ = m.Run(ctx) })
		_ = b.Run(ctx)
		require.Equal(t, w.steps+1, step)
		work.Wait()
		_ = recorder.Close(t.Context())
		require.NoError(t, b.Status().Round.Err)
		for _, n := range b.Status().Moved {
			moved += n
		}
		for i := range w.buckets {
			id, err := c.BucketID(t.Context(), name(i))
			require.NoError(t, err)
			root, err := c.Maps().Load(t.Context(), id)
			require.NoError(t, err)
			ranges = append(ranges, int(root.Ranges))
		}
	})
	return ranges, moved
}

// On a real store, where moves take seconds and not a step, the same tenants come to about as many ranges and moved
// rows as in the simulation; and each input, stored and read back, gives the decisions that were made.
func TestARealStoreComesToTheSame(t *testing.T) {
	for _, c := range []struct {
		kind      Kind
		perMinute int
	}{{Random, 300}, {Append, 300}, {Reversed, 100}, {Hotspot, 300}} {
		t.Run(string(c.kind), func(t *testing.T) {
			text := fmt.Sprintf("days: 0.04\nstep: 30s\ntenants: [{kind: %s, per_minute: %d}]", c.kind, c.perMinute)
			s, err := Read(strings.NewReader(text))
			require.NoError(t, err)
			report, err := Run(t.Context(), s)
			require.NoError(t, err)
			inputs := 0
			ranges, moved := real(t, s, func(_ store.BucketID, in *policy.Input, ds []policy.Decision) {
				inputs++
				requireReplay(t, in, ds)
			})
			all := 0
			for _, n := range ranges {
				all += n
			}
			t.Logf("%d ranges, %d rows moved, %d inputs; simulated %+v", all, moved, inputs, report.Total)
			require.InEpsilon(t, report.Total.Partitions, all, 0.15)
			require.InDelta(t, report.Total.Moved, moved, 0.05*float64(report.Total.Written))
		})
	}
}

// requireReplay demands that a stored input gives the same decisions.
func requireReplay(t *testing.T, in *policy.Input, ds []policy.Decision) {
	stored, err := json.Marshal(in)
	require.NoError(t, err)
	var read policy.Input
	require.NoError(t, json.Unmarshal(stored, &read))
	require.Equal(t, ds, policy.Decide(read))
}

// Every input of a run, stored and read back, gives the same decisions.
func TestInputsOfARunCanBeReplayed(t *testing.T) {
	s, err := Read(strings.NewReader("days: 0.2\nstep: 1m\ntenants: [{kind: random, per_minute: 50}, {kind: append, per_minute: 50}, " +
		"{kind: reversed, per_minute: 50}, {kind: random, per_minute: 30, to: 0.1, delete_at: [0.12], delete_keep: 0.05}]"))
	require.NoError(t, err)
	kinds := map[policy.Kind]int{}
	_, err = run(t.Context(), s, func(_ store.BucketID, in *policy.Input, ds []policy.Decision) {
		requireReplay(t, in, ds)
		for _, d := range ds {
			kinds[d.Kind]++
		}
	})
	require.NoError(t, err)
	for _, k := range []policy.Kind{policy.Split, policy.Roll, policy.Merge, policy.None} {
		require.Positive(t, kinds[k], "%s: %v", k, kinds)
	}
}
