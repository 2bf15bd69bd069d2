package exact_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
)

var rowsOnly = plan.Objective{Kind: plan.Rows}

// The oracle tries every set of cuts with every choice of what keeps its id.
func TestEqualsBruteForce(t *testing.T) {
	cases := 4000
	if testing.Short() {
		cases = 1000
	}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, limits := plannertest.Small(r, 9)
		require.Empty(t, plan.Validate(l, limits), "seed %d", seed)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, plan.Check(l, limits, p), "seed %d: %+v %+v", seed, l, limits)

		oracle := plannertest.NewOracle(l, limits)
		got := oracle.Judge(p)
		require.Equal(t, oracle.Best(), got, "seed %d: best, and the plan's\n%+v %+v\n%+v", seed, l, limits, p.Ranges)
		require.Equal(t, plannertest.Verdict{
			OverMax: p.Score.OverMax, UnderMin: p.Score.UnderMin, RowsMoved: p.Score.RowsMoved,
			Ranges: p.Score.Partitions, Squares: [2]uint64{p.Score.Squares.Hi, p.Score.Squares.Lo},
		}, got, "seed %d: the plan's score", seed)
	}
}

// What has no rows can move for nothing, and so should not.
func TestLeavesEmptyRangesAlone(t *testing.T) {
	quanta := func(k plan.Key) []plan.Quantum { return []plan.Quantum{{Key: k, Rows: 90}} }
	l := &plan.Layout{Partitions: []plan.Partition{
		{ID: "a"}, {ID: "b", Start: "b", Quanta: quanta("c")},
		{ID: "d", Start: "d", Quanta: []plan.Quantum{{Key: "e"}}},
		{ID: "f", Start: "f", Quanta: quanta("g")}, {ID: "h", Start: "h", Pinned: true},
		{ID: "i", Start: "i", Pinned: true},
	}}
	p, err := exact.Planner{}.Plan(context.Background(), l, plan.Limits{MaxRows: 100, TargetRows: 60}, rowsOnly)
	require.NoError(t, err)
	require.Empty(t, p.Moves)
}

func TestEndsWithItsContext(t *testing.T) {
	l, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 10, 10)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := exact.Planner{}.Plan(ctx, l, limits, rowsOnly)
	require.ErrorIs(t, err, context.Canceled)
}

// The largest numbers that a layout may have: nothing overflows on the way.
func TestHugeNumbers(t *testing.T) {
	l := &plan.Layout{Partitions: []plan.Partition{{ID: "a"}}}
	for i := range 64 {
		l.Partitions[0].Quanta = append(l.Partitions[0].Quanta,
			plan.Quantum{Key: plan.Key([]byte{byte(i)}), Rows: plan.MaxCount / 64})
	}
	for _, limits := range []plan.Limits{
		{MaxRows: plan.MaxCount / 8, MinRows: plan.MaxCount / 16, TargetRows: plan.MaxCount / 10},
		{MaxRows: 1, MinRows: 1, TargetRows: plan.MaxCount},
		{MaxRows: plan.MaxCount, MinRows: plan.MaxCount, TargetRows: 0},
	} {
		require.Empty(t, plan.Validate(l, limits))
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, plan.Check(l, limits, p))
		require.Equal(t, naive(l, limits), plannertest.NewOracle(l, limits).Judge(p))
	}
}
