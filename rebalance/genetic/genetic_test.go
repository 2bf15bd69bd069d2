package genetic_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/exact"
	"github.com/evenkeel/evenkeel/rebalance/genetic"
	"github.com/evenkeel/evenkeel/rebalance/greedy"
)

var (
	rowsOnly = rebalance.Objective{Kind: rebalance.Rows}
	full     = rebalance.Objective{Kind: rebalance.Full, Weights: rebalance.DefaultWeights}
	ctx      = context.Background()
)

func plan(t testing.TB, p rebalance.Planner, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective) *rebalance.Plan {
	t.Helper()
	got, err := p.Plan(ctx, l, limits, o)
	require.NoError(t, err)
	require.Empty(t, rebalance.Check(l, limits, got))
	return got
}

func planner(o genetic.Options) *genetic.Planner { return &genetic.Planner{Options: o} }

// Never worse than exact, greedy or today's layout, and better than each of them
// where load or placement matter.
func TestBeatsItsSeeds(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		for seed := range uint64(2) {
			l, limits := k.Make(rand.New(rand.NewPCG(seed, 1)))
			require.Empty(t, rebalance.Validate(l, limits))
			g := rebalance.NewGrid(l, limits)
			got := plan(t, planner(genetic.Options{Seed: int64(seed), Generations: 15}), l, limits, full)
			for name, other := range map[string]rebalance.Score{
				"today":  g.Score(g.Today(), full),
				"greedy": plan(t, greedy.Planner{}, l, limits, full).Score,
				"exact":  plan(t, exact.Planner{}, l, limits, full).Score,
			} {
				require.False(t, other.Better(&got.Score), "%s, seed %d: %s is better: %v than %v", k.Name, seed, name, other, got.Score)
				if k.Uneven {
					require.True(t, got.Score.Better(&other), "%s, seed %d: no better than %s", k.Name, seed, name)
				}
			}
		}
	}
}

// By rows moved alone the exact plan is the optimum, with or without which the
// search must come near to it.
func TestRowsMovedNearTheOptimum(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(1, 1)))
		best := plan(t, exact.Planner{}, l, limits, rowsOnly)
		got := plan(t, planner(genetic.Options{Generations: 15}), l, limits, rowsOnly)
		require.False(t, best.Score.Better(&got.Score), k.Name)
		require.LessOrEqual(t, float64(got.RowsMoved), 1.01*float64(best.RowsMoved), k.Name)

		first := plan(t, greedy.Planner{}, l, limits, rowsOnly)
		alone := plan(t, planner(genetic.Options{Generations: 15, WithoutExact: true}), l, limits, rowsOnly)
		require.False(t, first.Score.Better(&alone.Score), "%s: worse than greedy", k.Name)
	}
}

func TestKeepsTheRules(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		l, limits := plannertest.Small(r, 20)
		if r.IntN(3) > 0 {
			plannertest.Nodes(r, l, 1+r.IntN(4))
			limits.MaxWritesPerS = 15
		}
		got := plan(t, planner(genetic.Options{Seed: int64(seed), Generations: 25, WithoutExact: r.IntN(2) == 0}), l, limits, full)
		for _, n := range got.Notes {
			require.NotContains(t, n, "failed", "seed %d", seed)
		}
		best := plan(t, exact.Planner{}, l, limits, full)
		require.GreaterOrEqual(t, got.Score.UnderMin, best.Score.UnderMin, "seed %d: fewer than the fewest", seed)
	}
}

// The same seed and generations make the same plan, whatever ended the search.
func TestRepeats(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(7, 1)))
		asked := 0
		stopped := plan(t, planner(genetic.Options{Seed: 42, Generations: 1 << 30, Stop: func() bool { asked++; return asked > 7 }}), l, limits, full)
		require.Equal(t, int64(42), *stopped.Seed)
		require.LessOrEqual(t, *stopped.Generations, 7)
		again := plan(t, planner(genetic.Options{Seed: 42, Generations: *stopped.Generations}), l, limits, full)
		require.Equal(t, stopped, again, k.Name)

		a, err := json.Marshal(stopped)
		require.NoError(t, err)
		b, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(a), string(b), k.Name)
	}
}

func TestPatienceEndsTheSearch(t *testing.T) {
	l, limits := plannertest.Kinds()[8].Make(rand.New(rand.NewPCG(1, 1)))
	got := plan(t, planner(genetic.Options{Generations: 1 << 30, Patience: 5}), l, limits, full)
	require.Less(t, *got.Generations, 1000)
}

func TestNothingToDo(t *testing.T) {
	l, limits := plannertest.Kinds()[0].Make(rand.New(rand.NewPCG(1, 1)))
	got := plan(t, planner(genetic.Options{Generations: 1 << 30}), l, limits, full)
	require.Empty(t, got.Moves)
	require.Zero(t, *got.Generations)
}

func TestEndsWithItsContext(t *testing.T) {
	l, limits := plannertest.Kinds()[1].Make(rand.New(rand.NewPCG(1, 1)))
	c, cancel := context.WithCancel(ctx)
	asked := 0
	_, err := planner(genetic.Options{Generations: 1 << 30, Stop: func() bool {
		if asked++; asked == 5 {
			cancel()
		}
		return false
	}}).Plan(c, l, limits, full)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, asked, 10)
}

// On layouts that brute force can plan, nodes and all, the search nearly always
// finds the very optimum, and never anything better.
func TestNearBruteForce(t *testing.T) {
	const cases = 50
	found := 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 3))
		l, limits := plannertest.Small(r, 7)
		plannertest.Nodes(r, l, 2)
		limits.MaxWritesPerS = 25
		best := plannertest.BestFull(l, limits, full)
		got := plan(t, planner(genetic.Options{Seed: int64(seed), Generations: 40}), l, limits, full)
		require.False(t, got.Score.Better(&best) && got.Score.Cost < best.Cost*(1-1e-9), "seed %d: %v is better than the best, %v", seed, got.Score, best)
		require.Equal(t, best.UnderMin, got.Score.UnderMin, "seed %d", seed)
		if got.Score.Cost <= best.Cost*(1+1e-9) {
			found++
		}
	}
	t.Logf("the optimum in %d of %d cases", found, cases)
	require.GreaterOrEqual(t, found, cases*8/10)
}
