package exact_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Under the full objective no plan is better: beside brute force, which tries everything.
func TestCheapestEqualsBruteForce(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		l, limits := plannertest.Small(r, 8)
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 25
		o := rebalance.Costs(limits.MaxRows)
		if seed%2 == 0 {
			o.Weights.Spread = 1
		}
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, o)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), "seed %d", seed)
		best := plannertest.BestFull(l, limits, o)
		require.Equal(t, best.UnderMin, p.Score.UnderMin, "seed %d", seed)
		require.InDelta(t, best.Cost, p.Score.Cost, 1e-6*(1+best.Cost), "seed %d", seed)
	}
}

// On the layouts of life its plans keep the rules, and cost no more than those that move the fewest rows.
func TestCheapestOnLayoutsOfLife(t *testing.T) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(1, 1)))
		o := rebalance.Costs(limits.MaxRows)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, o)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), k.Name)
		g := grid.New(l, limits)
		d, err := exact.Solve(context.Background(), g)
		require.NoError(t, err)
		fewest := g.Score(d, o)
		require.False(t, fewest.Better(&p.Score), k.Name)
	}
}

// Where there are too many ranges to try, the plan moves the fewest rows, and says so.
func TestTooManyRangesToTry(t *testing.T) {
	l := &rebalance.Layout{Partitions: []rebalance.Partition{{ID: "a"}}}
	for i := range 6000 {
		key := rebalance.Key([]byte{byte(i >> 8), byte(i)})
		l.Partitions[0].Quanta = append(l.Partitions[0].Quanta, rebalance.Quantum{Key: key, Rows: 1})
	}
	limits := rebalance.Limits{MaxRows: 5990, TargetRows: 3000}
	require.False(t, exact.Few(grid.New(l, limits)))
	p, err := exact.Planner{}.Plan(context.Background(), l, limits, rebalance.Costs(limits.MaxRows))
	require.NoError(t, err)
	require.Equal(t, int64(10), p.RowsMoved)
	require.Contains(t, p.Notes[0], "too many ways to cut")

	limits.MaxRows = 100
	require.True(t, exact.Few(grid.New(l, limits)))
}
