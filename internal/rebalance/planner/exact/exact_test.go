package exact_test

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

var rowsOnly = rebalance.Objective{Kind: rebalance.Rows}

// The oracle tries every set of cuts with every choice of what keeps its id.
func TestEqualsBruteForce(t *testing.T) {
	cases := 4000
	if testing.Short() {
		cases = 1000
	}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, limits := plannertest.Small(r, 9)
		require.Empty(t, rebalance.Validate(l, limits), "seed %d", seed)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), "seed %d: %+v %+v", seed, l, limits)

		oracle := plannertest.NewOracle(l, limits)
		got := oracle.Judge(p)
		squares := p.Score.Squares
		high := new(big.Int).Rsh(squares, 64)
		require.Equal(t, oracle.Best(), got, "seed %d: best, and the plan's\n%+v %+v\n%+v", seed, l, limits, p.Ranges)
		require.Equal(t, plannertest.Verdict{
			OverMax: p.Score.OverMax, UnderMin: p.Score.UnderMin, RowsMoved: p.Score.RowsMoved,
			Ranges: p.Score.Partitions, Squares: [2]uint64{high.Uint64(), squares.Uint64()},
		}, got, "seed %d: the plan's score", seed)
	}
}

// What has no rows can move for nothing, and so should not.
func TestLeavesEmptyRangesAlone(t *testing.T) {
	quanta := func(k rebalance.Key) []rebalance.Quantum { return []rebalance.Quantum{{Key: k, Rows: 90}} }
	l := &rebalance.Layout{Partitions: []rebalance.Partition{
		{ID: "a"}, {ID: "b", Start: "b", Quanta: quanta("c")},
		{ID: "d", Start: "d", Quanta: []rebalance.Quantum{{Key: "e"}}},
		{ID: "f", Start: "f", Quanta: quanta("g")}, {ID: "h", Start: "h", Pinned: true},
		{ID: "i", Start: "i", Pinned: true},
	}}
	p, err := exact.Planner{}.Plan(context.Background(), l, rebalance.Limits{MaxRows: 100, TargetRows: 60}, rowsOnly)
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
	l := &rebalance.Layout{Partitions: []rebalance.Partition{{ID: "a"}}}
	for i := range 64 {
		l.Partitions[0].Quanta = append(l.Partitions[0].Quanta,
			rebalance.Quantum{Key: rebalance.Key([]byte{byte(i)}), Rows: rebalance.MaxCount / 64})
	}
	for _, limits := range []rebalance.Limits{
		{MaxRows: rebalance.MaxCount / 8, MinRows: rebalance.MaxCount / 16, TargetRows: rebalance.MaxCount / 10},
		{MaxRows: 1, MinRows: 1, TargetRows: rebalance.MaxCount},
		{MaxRows: rebalance.MaxCount, MinRows: rebalance.MaxCount, TargetRows: 0},
	} {
		require.Empty(t, rebalance.Validate(l, limits))
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p))
		require.Equal(t, naive(l, limits), plannertest.NewOracle(l, limits).Judge(p))
	}
}
