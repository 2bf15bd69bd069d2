package policysim

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
	"github.com/evenkeel/evenkeel/store"
)

// quietBucket is a bucket as planners see it, and the balancer, some time after its last request.
type quietBucket struct {
	layout   rebalance.Layout
	limits   rebalance.Limits
	verdicts []policy.Decision
}

// left plays a scenario, leaves its buckets alone for a while, beside the balancer, and returns them.
func left(t *testing.T, s *Scenario, quiet time.Duration) (out []quietBucket) {
	t.Helper()
	threads := balancer.NewCoroutines(begin)
	ctx, stop := context.WithCancel(t.Context())
	defer threads.Settle()
	defer stop()
	w, err := newWorld(ctx, s, threads.Now, threads.Sleep, nil)
	require.NoError(t, err)
	o := s.options()
	o.Now, o.Threads, o.Decided = threads.Now, threads, w.decided
	b := balancer.New(scanned{w.t, &w.mover}, w, w, w.counts, o)
	_, err = w.play(ctx, threads, b.Run, s.end()+quiet)
	require.NoError(t, err)
	done := false
	threads.Go(func() {
		for _, x := range w.buckets {
			q := quietBucket{limits: b.Limits()}
			_, err = b.Layout(ctx, x.id, false, func(p rebalance.Partition) error {
				q.layout.Partitions = append(q.layout.Partitions, p)
				return nil
			})
			if err != nil && store.KindOf(err) == store.Conflict {
				continue // a range moves
			}
			require.NoError(t, err)
			_, err = b.Look(ctx, x.id, nil, func(r balancer.Seen) error {
				q.verdicts = append(q.verdicts, r.Verdict)
				return nil
			})
			require.NoError(t, err)
			out = append(out, q)
		}
		done = true
	})
	threads.Settle()
	require.True(t, done, "a bucket that is quiet needs no recount")
	return out
}

// requireNoMoves demands that by default no planner moves anything.
func requireNoMoves(t *testing.T, q *quietBucket) {
	t.Helper()
	require.Empty(t, rebalance.Validate(&q.layout, q.limits))
	for _, name := range planner.Names() {
		p, err := planner.New(name, planner.Options{Seed: 1, Generations: 20})
		require.NoError(t, err)
		made, err := p.Plan(t.Context(), &q.layout, q.limits, rebalance.Objective{Kind: rebalance.Rows})
		require.NoError(t, err)
		for _, m := range made.Moves {
			i := slices.IndexFunc(q.layout.Partitions, func(p rebalance.Partition) bool { return p.ID == m.From })
			from := &q.layout.Partitions[i]
			t.Errorf("%s moves range %d of %d with %d rows, pinned %v, of which the balancer says %v: %v",
				name, i, len(q.layout.Partitions), from.Rows(), from.Pinned, q.verdicts[i], m)
		}
	}
}

// long are scenarios that take minutes, because of many buckets, ranges or days. Others are like them.
var long = []string{"emptied-100000", "giant", "months", "slow-store", "speeds"}

// By default a plan for a bucket that is quiet moves nothing: what the balancer leaves as it is is fine.
func TestAPlanOfAQuietBucketMovesNothing(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, _, err := Builtin(name)
			require.NoError(t, err)
			if slices.Contains(long, name) || s.Days > 0.2 && os.Getenv(variable) == "" {
				t.Skip("it takes long: make sim plays scenarios of more than a fifth of a day")
			}
			for _, q := range left(t, s, 6*time.Hour) {
				requireNoMoves(t, &q)
			}
		})
	}
}

// Right after a load has ended its growth, a mean over an hour, is no reason to move anything.
func TestAPlanRightAfterALoadMovesNothing(t *testing.T) {
	s := read(t, "days: 0.001", "max_rows: 100000", "tenants: [{loads: [{rows: 120000, per_s: 1600}]}]")
	for _, q := range left(t, s, 12*time.Minute) {
		require.GreaterOrEqual(t, len(q.layout.Partitions), 2)
		requireNoMoves(t, &q)
	}
}
