package greedy_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

var rowsOnly = rebalance.Objective{Kind: rebalance.Rows}

func TestKeepsTheRules(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, limits := plannertest.Small(r, 20)
		plannertest.Load(r, l)
		p, err := greedy.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), "seed %d: %+v %+v", seed, l, limits)
		require.Zero(t, p.Score.OverMax)
		best, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.False(t, p.Score.Better(&best.Score), "seed %d: better than the optimum", seed)
	}
}

// Greedy is a fair comparison: not far off where there is room.
func TestNotFarOff(t *testing.T) {
	for seed := range uint64(10) {
		l, limits := plannertest.Thousand(rand.New(rand.NewPCG(seed, 2)), 200, 100)
		p, err := greedy.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		best, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		t.Logf("seed %d: under %d for %d, rows moved %.3f of the optimum", seed, p.Score.UnderMin, best.Score.UnderMin,
			float64(p.RowsMoved)/float64(best.RowsMoved))
		require.Less(t, float64(p.RowsMoved), 1.3*float64(best.RowsMoved), "seed %d", seed)
		require.LessOrEqual(t, p.Score.UnderMin, best.Score.UnderMin+10, "seed %d", seed)
	}
}

// Nothing to do is nothing done.
func TestLeavesWhatIsFine(t *testing.T) {
	l, limits := plannertest.Kinds()[0].Make(rand.New(rand.NewPCG(1, 1)))
	p, err := greedy.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
	require.NoError(t, err)
	require.Empty(t, p.Moves)
}
