package exact_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/exact"
)

var rowsOnly = rebalance.Objective{Kind: rebalance.Rows}

// The oracle tries every set of cuts with every choice of what keeps its id.
func TestEqualsBruteForce(t *testing.T) {
	cases := 6000
	if testing.Short() {
		cases = 1000
	}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, limits := plannertest.Small(r, 10)
		require.Empty(t, rebalance.Validate(l, limits), "seed %d", seed)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), "seed %d: %+v %+v", seed, l, limits)

		oracle := plannertest.NewOracle(l, limits)
		got := oracle.Judge(p)
		require.Equal(t, oracle.Best(), got, "seed %d: best, and the plan's\n%+v %+v\n%+v", seed, l, limits, p.Ranges)
		require.Equal(t, plannertest.Verdict{
			OverMax: p.Score.OverMax, UnderMin: p.Score.UnderMin, RowsMoved: p.Score.RowsMoved,
			Ranges: p.Score.Partitions, Squares: [2]uint64{p.Score.Squares.Hi, p.Score.Squares.Lo},
		}, got, "seed %d: the plan's score", seed)
	}
}
