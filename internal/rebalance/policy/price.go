package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Price is the cost of a decision about some ranges, by the costs of rebalance.Costs. Today is the cost if nothing is
// done. After is the cost if the decision is carried out.
type Price struct {
	Today, After rebalance.Score
	// Parts are the numbers of rows of the ranges after the decision is carried out.
	Parts []int64
	// Least is the cost of the cheapest possible cuts of a split that leave the same room for growth, for a comparison
	// with the chosen cuts. Least is 0 for a decision that does not cut by the number of rows, and for a range in which
	// the search for the cheapest cuts would take too long.
	Least float64
}

// Price returns the cost of the decision d, which is a split, merge or refresh. Rows are known as quanta, which are
// runs of neighbouring rows. All rows of a quantum are counted as if they lay at its first key. The boolean result is
// false if
//   - the decision is of another kind, or
//   - it is not known exactly enough at which keys the rows lie.
func (in *Input) Price(d *Decision) (Price, bool) {
	if d.Kind != Split && d.Kind != Merge && d.Kind != Refresh {
		return Price{}, false
	}
	p := in.Policy.sized(&in.Ranges[d.From].Stats)
	l := &rebalance.Layout{}
	for i := d.From; i < d.To; i++ {
		r := &in.Ranges[i]
		x := rebalance.Partition{ID: fmt.Sprint(i), Start: rebalance.Key(r.Start)}
		x.Quanta = []rebalance.Quantum{{Key: x.Start, Rows: r.Stats.Rows}}
		if d.Kind == Split {
			if len(r.Quanta) == 0 {
				return Price{}, false
			}
			x.Quanta[0].Rows = r.Quanta[0].Rows // the first key is empty and stands for the start
			for _, q := range r.Quanta[1:] {
				x.Quanta = append(x.Quanta, rebalance.Quantum{Key: rebalance.Key(q.Key), Rows: q.Rows})
			}
		}
		l.Partitions = append(l.Partitions, x)
	}
	g := grid.New(l, rebalance.Limits{MaxRows: p.MaxRows, MinRows: p.MinRows, TargetRows: p.TargetRows})
	after := grid.Draft{{Keep: d.Stay == 0}}
	for k, cut := range d.Cuts {
		at, _ := slices.BinarySearch(g.Keys, rebalance.Key(cut))
		if at == g.N || at <= int(after[k].Start) {
			return Price{}, false
		}
		after = append(after, grid.Piece{Start: int32(at), Keep: d.Stay == k+1})
	}
	o := rebalance.Costs(p.MaxRows)
	out := Price{Today: g.Score(g.Today(), o), After: g.Score(after, o)}
	for i := range after {
		out.Parts = append(out.Parts, g.RowsIn(after[i].Start, after.End(g, i)))
	}
	if d.Kind == Split && d.Why != Load {
		if grown := grid.New(l, p.partLimits(&in.Ranges[d.From], d)); exact.Few(grown) {
			cuts, err := exact.Cheapest(context.Background(), grown, o.Weights)
			if err != nil {
				return Price{}, false // it fails only when its context ends
			}
			out.Least = g.Score(cuts, o).Cost
		}
	}
	return out, true
}
