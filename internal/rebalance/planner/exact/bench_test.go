package exact_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

func benchmark(b *testing.B, l *rebalance.Layout, limits rebalance.Limits) {
	b.ReportAllocs()
	for b.Loop() {
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(p.RowsMoved), "rows-moved")
	}
}

func Benchmark1000x100(b *testing.B) {
	l, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 1000, 100)
	benchmark(b, l, limits)
}

func Benchmark100000(b *testing.B) {
	l, limits := plannertest.Huge(rand.New(rand.NewPCG(1, 1)), 100000)
	benchmark(b, l, limits)
}

// All ranges are far below the maximum: windows of thousands of positions.
func BenchmarkCrumbs(b *testing.B) {
	l, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 1000, 100)
	for i := range l.Partitions {
		for j := range l.Partitions[i].Quanta {
			l.Partitions[i].Quanta[j].Rows = 1
		}
	}
	benchmark(b, l, limits)
}
