package planner_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// BenchmarkMicroPlan plans a layout of 100 partitions of 100 quanta each, by
// greedy and exact on rows moved, and by 20 generations of genetic on everything.
func BenchmarkMicroPlan(b *testing.B) {
	l, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 100, 100)
	for _, name := range []string{"greedy", "exact", "genetic"} {
		b.Run(name, func(b *testing.B) {
			o := rebalance.Objective{Kind: rebalance.Rows}
			if name == "genetic" {
				o = rebalance.Costs(limits.MaxRows)
			}
			b.ReportAllocs()
			for b.Loop() {
				p, err := planner.New(name, planner.Options{Seed: 1, Generations: 20})
				require.NoError(b, err)
				_, err = p.Plan(context.Background(), l, limits, o)
				require.NoError(b, err)
			}
		})
	}
}
