package genetic_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

var (
	rowsOnly = rebalance.Objective{Kind: rebalance.Rows}
	ctx      = context.Background()
)

func planned(
	t testing.TB, p rebalance.Planner, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) *rebalance.Plan {
	t.Helper()
	got, err := p.Plan(ctx, l, limits, o)
	require.NoError(t, err)
	require.Empty(t, rebalance.Check(l, limits, got))
	return got
}

func planner(o genetic.Options) *genetic.Planner { return &genetic.Planner{Options: o} }

// Never worse than today's layout, the greedy plan and the one that moves the fewest rows, and better than each of them
// where load matters; never better than the optimum.
func TestBeatsItsSeeds(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		for seed := range uint64(2) {
			l, limits := k.Make(rand.New(rand.NewPCG(seed, 1)))
			require.Empty(t, rebalance.Validate(l, limits))
			g := grid.New(l, limits)
			costs := rebalance.Costs(limits.MaxRows)
			fewest, err := exact.Solve(ctx, g)
			require.NoError(t, err)
			got := planned(t, planner(genetic.Options{Seed: int64(seed), Generations: 15}), l, limits, costs)
			for name, other := range map[string]rebalance.Score{
				"today":        g.Score(g.Today(), costs),
				"greedy":       planned(t, greedy.Planner{}, l, limits, costs).Score,
				"fewest moved": g.Score(fewest, costs),
			} {
				require.False(t, other.Better(&got.Score), "%s, seed %d: %s is better: %v than %v", k.Name, seed, name,
					other, got.Score)
				if k.Uneven {
					require.True(t, got.Score.Better(&other), "%s, seed %d: no better than %s", k.Name, seed, name)
				}
			}
			best := planned(t, exact.Planner{}, l, limits, costs).Score
			best.Cost *= 1 - 1e-9
			require.False(t, got.Score.Better(&best), "%s, seed %d: better than the optimum", k.Name, seed)
		}
	}
}

// By rows moved alone the exact plan is the optimum: there is nothing to search for.
func TestRowsMovedAreTheOptimum(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(1, 1)))
		best := planned(t, exact.Planner{}, l, limits, rowsOnly)
		got := planned(t, planner(genetic.Options{Generations: 15}), l, limits, rowsOnly)
		require.Equal(t, best.Score, got.Score, k.Name)
		require.Zero(t, *got.Generations, k.Name)
	}
}

func TestKeepsTheRules(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		l, limits := plannertest.Small(r, 20)
		if r.IntN(3) > 0 {
			plannertest.Load(r, l)
			limits.MaxWritesPerS = 15
		}
		got := planned(t, planner(genetic.Options{Seed: int64(seed), Generations: 25}),
			l, limits, rebalance.Costs(limits.MaxRows))
		for _, n := range got.Notes {
			require.NotContains(t, n, "failed", "seed %d", seed)
		}
		best := planned(t, exact.Planner{}, l, limits, rebalance.Costs(limits.MaxRows))
		require.GreaterOrEqual(t, got.Score.UnderMin, best.Score.UnderMin, "seed %d: fewer than the fewest", seed)
	}
}

// The same seed and generations make the same plan, whatever ended the search.
func TestRepeats(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(7, 1)))
		asked := 0
		stopped := planned(t, planner(genetic.Options{
			Seed: 42, Generations: 1 << 30, Stop: func() bool { asked++; return asked > 7 },
		}), l, limits, rebalance.Costs(limits.MaxRows))
		require.Equal(t, int64(42), *stopped.Seed)
		require.LessOrEqual(t, *stopped.Generations, 7)
		again := planned(t, planner(genetic.Options{Seed: 42, Generations: *stopped.Generations}),
			l, limits, rebalance.Costs(limits.MaxRows))
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
	got := planned(t, planner(genetic.Options{Generations: 1 << 30, Patience: 5}),
		l, limits, rebalance.Costs(limits.MaxRows))
	require.Less(t, *got.Generations, 1000)
}

func TestNothingToDo(t *testing.T) {
	l, limits := plannertest.Kinds()[0].Make(rand.New(rand.NewPCG(1, 1)))
	got := planned(t, planner(genetic.Options{Generations: 1 << 30}), l, limits, rebalance.Costs(limits.MaxRows))
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
	}}).Plan(c, l, limits, rebalance.Costs(limits.MaxRows))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, asked, 10)
}

// On layouts that brute force can plan, the search nearly always
// finds the very optimum, and never anything better.
func TestNearBruteForce(t *testing.T) {
	const cases = 50
	found := 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 3))
		l, limits := plannertest.Small(r, 7)
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 25
		best := plannertest.BestFull(l, limits, rebalance.Costs(limits.MaxRows))
		got := planned(t, planner(genetic.Options{Seed: int64(seed), Generations: 40}),
			l, limits, rebalance.Costs(limits.MaxRows))
		require.False(t, got.Score.Better(&best) && got.Score.Cost < best.Cost*(1-1e-9),
			"seed %d: %v is better than the best, %v", seed, got.Score, best)
		require.Equal(t, best.UnderMin, got.Score.UnderMin, "seed %d", seed)
		if got.Score.Cost <= best.Cost*(1+1e-9) {
			found++
		}
	}
	t.Logf("the optimum in %d of %d cases", found, cases)
	require.GreaterOrEqual(t, found, cases*8/10)
}
