package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/rebalance"
)

const maxRows = 100_000

// limits are the size limits of evenkeel's policy for partitions, with the default time that forecasts look ahead.
var limits = rebalance.Limits{
	MaxRows: maxRows, MinRows: maxRows / 4, TargetRows: maxRows / 10 * 6, HorizonS: 180, MaxWritesPerS: 1000,
}

// neighbours returns n random ranges of a bucket, with sizes as real load leaves them: from a quarter of the maximum to
// the maximum, evenly on a logarithmic scale. One range in six is too large, and one in six too small. A few ranges
// take most writes (Zipf), and up to half of the writes are new rows. quanta is the number of places at which each
// range can be cut.
func neighbours(r *rand.Rand, n, quanta int) *rebalance.Layout {
	l := &rebalance.Layout{Bucket: "b"}
	popular := r.Perm(n)
	for i := range n {
		p := rebalance.Partition{ID: fmt.Sprint("p", i)}
		prefix := fmt.Sprintf("%04d", i)
		if i > 0 {
			p.Start = rebalance.Key(prefix)
		}
		rows := int64(maxRows / 4 * math.Exp(r.Float64()*math.Log(4)))
		switch r.IntN(6) {
		case 0:
			rows = maxRows + r.Int64N(maxRows/2)
		case 1:
			rows = r.Int64N(maxRows / 4)
		}
		weights, sum := make([]float64, quanta), 0.0
		for k := range weights {
			weights[k] = 0.5 + r.Float64()
			sum += weights[k]
		}
		for k := range quanta {
			p.Quanta = append(p.Quanta, rebalance.Quantum{
				Key: rebalance.Key(fmt.Sprintf("%s/%04d", prefix, k)), Rows: int64(float64(rows) * weights[k] / sum),
			})
		}
		p.WritesPerS = 2000 / float64(popular[i]+1)
		p.GrowthRowsPerS = p.WritesPerS * r.Float64() / 2
		l.Partitions = append(l.Partitions, p)
	}
	return l
}

// oneRange plays the situation of a live decision: one range that has just passed its maximum, or that was loaded with
// up to five times the maximum.
func oneRange(r *rand.Rand, seed uint64) outcome {
	l := neighbours(r, 1, 128)
	p := &l.Partitions[0]
	more := 1.01
	if seed%2 == 1 {
		more = 1 + 4*r.Float64()
	}
	rows := p.Rows()
	for i := range p.Quanta {
		p.Quanta[i].Rows = int64(float64(p.Quanta[i].Rows) * more * maxRows / float64(rows))
	}
	p.WritesPerS, p.GrowthRowsPerS = p.WritesPerS/20, 0
	return compare(l, seed)
}

func window(r *rand.Rand, seed uint64) outcome { return compare(neighbours(r, 9, 64), seed) }

// compare lets all planners plan the layout l, and returns the costs of their plans.
func compare(l *rebalance.Layout, seed uint64) outcome {
	g := grid.New(l, limits)
	costs := rebalance.Costs(maxRows)
	best := g.Score(cheapest(g, costs.Weights), costs)
	// A range under the minimum that need not be costs as much as to copy a full one.
	cost := func(s rebalance.Score) float64 { return s.Cost + maxRows*float64(s.UnderMin-best.UnderMin) }
	drafted := func(d grid.Draft) float64 {
		s := g.Score(d, costs)
		if s.OverMax > 0 {
			panic("a plan leaves a range over the maximum")
		}
		return cost(s)
	}
	planned := func(p rebalance.Planner) float64 {
		made, err := p.Plan(context.Background(), l, limits, costs)
		if err != nil {
			panic(err) // it fails only when its context ends
		}
		if problems := rebalance.Check(l, limits, made); len(problems) > 0 {
			panic(problems)
		}
		return cost(made.Score)
	}
	o := outcome{asIs: cost(g.Score(g.Today(), costs)), bound: best.Cost}
	o.plans = []result{
		timed("halves", func() float64 { return drafted(parts(g, 1./2)) }),
		timed("a quarter leaves", func() float64 { return drafted(parts(g, 1./4)) }),
		timed("greedy", func() float64 { return planned(greedy.Planner{}) }),
		timed("fewest rows moved", func() float64 {
			d, err := exact.Solve(context.Background(), g)
			if err != nil {
				panic(err) // it fails only when its context ends
			}
			return drafted(d)
		}),
		timed("genetic, 40 generations", func() float64 {
			return planned(genetic.Planner{Options: genetic.Options{Seed: int64(seed), Generations: 40, Patience: 12}})
		}),
		timed("genetic, 2,000 generations", func() float64 {
			return planned(genetic.Planner{Options: genetic.Options{Seed: int64(seed), Generations: 2000}})
		}),
		timed("exact", func() float64 { return planned(exact.Planner{}) }),
	}
	return o
}

// parts returns a plan that cuts each range which is too large, and leaves the other ranges. The cuts move share of the
// rows of the range away, or more if the rest would exceed the maximum. If share is one half, the new ranges have the
// target size.
func parts(g *grid.Grid, share float64) grid.Draft {
	var d grid.Draft
	for p := range int32(len(g.First) - 1) {
		start, end := g.First[p], g.First[p+1]
		d = append(d, grid.Piece{Start: start})
		rows := g.RowsIn(start, end)
		if rows <= g.Limits.MaxRows {
			continue
		}
		first := max(int64(share*float64(rows)), rows-g.Limits.MaxRows)
		n := max(1, (first+g.Limits.MaxRows-1)/g.Limits.MaxRows)
		if share == 1./2 {
			n = (rows+g.Limits.TargetRows-1)/g.Limits.TargetRows - 1
			first = rows / (n + 1) * n
		}
		if share < 1./2 {
			first += g.Limits.MaxRows / 50 // what lies between two places to cut at
		}
		k := int64(1)
		for at := start + 1; at < end && k <= n; at++ {
			if g.RowsIn(start, at) >= first*k/n || g.RowsIn(d[len(d)-1].Start, at+1) > g.Limits.MaxRows {
				d = append(d, grid.Piece{Start: at})
				k++
			}
		}
	}
	d.KeepLargest(g)
	return d
}

// cheapest returns the plan with the lowest cost, by the weights w.
func cheapest(g *grid.Grid, w rebalance.Weights) grid.Draft {
	d, err := exact.Cheapest(context.Background(), g, w)
	if err != nil {
		panic(err) // it fails only when its context ends
	}
	return d
}
