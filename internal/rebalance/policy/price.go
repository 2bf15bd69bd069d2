package policy

import (
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
)

// Price is what the ranges of a decision cost, under plan.Costs, if nothing is done and if it is carried out.
type Price struct {
	Today, After plan.Score
	// Parts are the rows of each range afterwards.
	Parts []int64
}

// Price returns the price of a split, merge or refresh. False: it is another decision, or where the rows lie is not
// known.
func (in *Input) Price(d *Decision) (Price, bool) {
	if d.Kind != Split && d.Kind != Merge && d.Kind != Refresh {
		return Price{}, false
	}
	p := &in.Policy
	l := &plan.Layout{}
	for i := d.From; i < d.To; i++ {
		r := &in.Ranges[i]
		x := plan.Partition{ID: fmt.Sprint(i), Start: plan.Key(r.Start)}
		x.Quanta = []plan.Quantum{{Key: x.Start, Rows: r.Stats.Rows}}
		if d.Kind == Split {
			if len(r.Quanta) == 0 {
				return Price{}, false
			}
			x.Quanta[0].Rows = r.Quanta[0].Rows // its key is empty, and stands for the start
			for _, q := range r.Quanta[1:] {
				x.Quanta = append(x.Quanta, plan.Quantum{Key: plan.Key(q.Key), Rows: q.Rows})
			}
		}
		l.Partitions = append(l.Partitions, x)
	}
	g := plan.NewGrid(l, plan.Limits{MaxRows: p.MaxRows, MinRows: p.MinRows, TargetRows: p.TargetRows})
	after := plan.Draft{{Keep: d.Stay == 0}}
	for k, cut := range d.Cuts {
		at := slices.Index(g.Keys, plan.Key(cut))
		if at < 0 {
			return Price{}, false
		}
		after = append(after, plan.Piece{Start: int32(at), Keep: d.Stay == k+1})
	}
	o := plan.Costs(p.MaxRows)
	out := Price{Today: g.Score(g.Today(), o), After: g.Score(after, o)}
	for i := range after {
		out.Parts = append(out.Parts, g.RowsIn(after[i].Start, after.End(g, i)))
	}
	return out, true
}
