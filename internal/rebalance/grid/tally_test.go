package grid_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

// A tally of parts is the score of the whole, and terms add up to the cost.
func TestScoreTerms(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		l, limits := plannertest.Small(r, 12)
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 20
		o := rebalance.Costs(limits.MaxRows)
		o.Weights.Spread = 1
		g := grid.New(l, limits)
		d, err := exact.Solve(context.Background(), g)
		require.NoError(t, err)
		s := g.Score(d, o)
		tally := grid.NewTally(g)
		for i, p := range d {
			tally.Add(p.Start, d.End(g, i), p.Keep)
		}
		_, _, cost := tally.Counts(o.Weights)
		require.InDelta(t, s.Cost, cost, 1e-9*(1+cost), "seed %d", seed)

		// The terms, once more from their definitions, by the plan alone.
		p := g.Plan(d, o)
		spread, load, forecast, capped := 0.0, 0.0, 0.0, int64(0)
		for i := range l.Partitions {
			for _, q := range l.Partitions[i].Quanta {
				capped += min(q.Rows, limits.MaxRows)
			}
		}
		tooMany := float64(len(p.Ranges)) - max(1, math.Ceil(float64(capped)/float64(limits.MaxRows)))
		require.GreaterOrEqual(t, tooMany, 0.0, "seed %d", seed)
		target := float64(max(limits.TargetRows, 1))
		for i, r := range p.Ranges {
			writes, growth := plannertest.Rates(l, p, i)
			spread += float64((r.Rows-limits.TargetRows)*(r.Rows-limits.TargetRows)) / target
			forecast += max(0, float64(r.Rows)+growth*limits.HorizonS-float64(limits.MaxRows))
			load += max(0, writes/limits.MaxWritesPerS-1) * float64(limits.TargetRows)
		}
		want := []float64{float64(p.RowsMoved), float64(len(p.Moves)), tooMany, spread, forecast, load}
		total := 0.0
		for i, term := range s.Terms {
			require.InDelta(t, want[i], term.Value, 1e-6*(1+want[i]), "seed %d: %s", seed, term.Name)
			total += term.Value * term.Weight
		}
		require.InDelta(t, total, s.Cost, 1e-6*(1+total), "seed %d", seed)
	}
}

func TestHistogramCountsEachRangeOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		l, limits := plannertest.Small(r, 12)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
		require.NoError(t, err)
		before, after, over := 0, 0, 0
		for _, b := range grid.Histogram(l, limits, p) {
			before, after = before+b.Before, after+b.After
			if len(b.Label) > 4 && b.Label[:5] == "over " {
				over += b.After
			}
		}
		require.Equal(t, []int{len(l.Partitions), len(p.Ranges), p.Score.OverMax + p.Score.Undividable},
			[]int{before, after, over}, "seed %d", seed)
	}
}
