package planner_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// limit is the time limit of the command.
const limit = 2 * time.Second

func bench(b *testing.B, name string, o rebalance.Objective, l *rebalance.Layout, limits rebalance.Limits) {
	var best *rebalance.Plan
	for b.Loop() {
		began := time.Now()
		p, err := planner.New(name, planner.Options{
			Seed: 1, Generations: 1 << 30, Stop: func() bool { return time.Since(began) > limit },
		})
		if err != nil {
			b.Fatal(err)
		}
		if best, err = p.Plan(context.Background(), l, limits, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(best.RowsMoved), "rows-moved")
	b.ReportMetric(100*best.Optimality.Gap, "%gap")
	b.ReportMetric(float64(best.Score.UnderMin), "under-min")
	if o.Kind == rebalance.Full {
		b.ReportMetric(best.Score.Cost, "cost")
		if len(l.Partitions) <= 1000 {
			_, least := plannertest.Separable(l, limits, o.Weights)
			b.ReportMetric(100*(best.Score.Cost/least-1), "%above-least-cost")
		}
	}
}

// BenchmarkQuality is what bench/results/planners.md sums up: each planner on each kind of
// layout. Run it with -benchtime 1x.
func BenchmarkQuality(b *testing.B) {
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(1, 1)))
		for _, o := range []rebalance.Objective{{Kind: rebalance.Rows}, rebalance.Costs(limits.MaxRows)} {
			for _, name := range []string{"greedy", "exact", "genetic"} {
				b.Run(strings.ReplaceAll(k.Name, " ", "-")+"/"+string(o.Kind)+"/"+name, func(b *testing.B) { bench(b, name, o, l, limits) })
			}
		}
	}
}

// BenchmarkLarge are the two sizes that must be fast.
func BenchmarkLarge(b *testing.B) {
	thousand, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 1000, 100)
	huge, _ := plannertest.Huge(rand.New(rand.NewPCG(1, 1)), 100000)
	for _, c := range []struct {
		name string
		l    *rebalance.Layout
	}{{"1000x100", thousand}, {"100000", huge}} {
		for _, o := range []rebalance.Objective{{Kind: rebalance.Rows}, rebalance.Costs(limits.MaxRows)} {
			for _, name := range []string{"greedy", "exact", "genetic"} {
				b.Run(c.name+"/"+string(o.Kind)+"/"+name, func(b *testing.B) { bench(b, name, o, c.l, limits) })
			}
		}
	}
}
