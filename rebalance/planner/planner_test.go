package planner_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

func TestNames(t *testing.T) {
	l, limits := plannertest.Kinds()[4].Make(rand.New(rand.NewPCG(1, 1)))
	made := map[string]string{}
	for _, name := range planner.Names() {
		for _, o := range []rebalance.Objective{{Kind: rebalance.Rows}, rebalance.Costs(limits.MaxRows)} {
			p, err := planner.New(name, planner.Options{Seed: 1, Generations: 5})
			require.NoError(t, err)
			plan, err := p.Plan(context.Background(), l, limits, o)
			require.NoError(t, err)
			require.Equal(t, o.Kind, plan.Score.Kind)
			made[name+" "+string(o.Kind)] = plan.Planner
		}
	}
	require.Equal(t, map[string]string{
		"exact rows": "exact", "exact full": "exact", "greedy rows": "greedy", "greedy full": "greedy",
		"genetic rows": "genetic", "genetic full": "genetic", "auto rows": "exact", "auto full": "exact",
	}, made)
	_, err := planner.New("best", planner.Options{})
	require.ErrorContains(t, err, "exact, greedy, genetic, auto")
}

// The bound is one: no plan moves fewer rows, and it is that of plans that keep
// as few ranges under the minimum.
func TestBoundHolds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, limits := plannertest.Small(r, 20)
		plannertest.Load(r, l)
		best, err := exact.Planner{}.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
		require.NoError(t, err)
		for _, name := range planner.Names() {
			p, err := planner.New(name, planner.Options{Seed: int64(seed), Generations: 5})
			require.NoError(t, err)
			plan, err := p.Plan(context.Background(), l, limits, rebalance.Costs(limits.MaxRows))
			require.NoError(t, err)
			require.GreaterOrEqual(t, plan.RowsMoved, plan.Optimality.LowerBound, "seed %d, %s", seed, name)
			require.GreaterOrEqual(t, plan.Optimality.Gap, 0.0)
			if plan.Score.UnderMin == best.Score.UnderMin {
				require.Equal(t, best.RowsMoved, plan.Optimality.LowerBound, "seed %d, %s", seed, name)
			}
		}
	}
}
