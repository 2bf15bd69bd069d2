// Package greedy plans in two passes, each of which never looks back: cut what is
// too large at the cap, then join what is too small to a neighbour. The largest
// piece of each old partition keeps the id.
//
// It shows what looking back is worth (on rows moved it ends about a tenth above
// the optimum), and is one of the seeds of the genetic planner.
package greedy

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
)

// Planner is the greedy planner. It plans alike for each objective.
type Planner struct{}

// Plan implements rebalance.Planner.
func (Planner) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := plan.NewGrid(l, limits)
	p := g.Plan(Solve(g), o)
	p.Planner = "greedy"
	return p, nil
}

// Solve returns the greedy draft for a grid, in time linear in its atoms.
func Solve(g *plan.Grid) plan.Draft {
	var d plan.Draft
	for p := range int32(len(g.First) - 1) {
		d = split(g, d, g.First[p], g.First[p+1])
	}
	d = merge(g, d)
	d.KeepLargest(g)
	return d
}

// split appends the pieces of [start, end): each is filled up to the cap, as long
// as the rest of the partition is worth a partition of its own.
func split(g *plan.Grid, d plan.Draft, start, end int32) plan.Draft {
	lim := &g.Limits
	for {
		d = append(d, plan.Piece{Start: start})
		if g.RowsIn(start, end) <= lim.MaxRows || !g.Divisible(start, end) {
			return d
		}
		cut := start + 1
		for g.RowsIn(start, cut+1) <= lim.MaxRows || !g.Divisible(start, cut+1) {
			cut++
		}
		// A short rest takes rows from the piece before it, if that has enough.
		for back := cut; g.RowsIn(back, end) <= lim.MaxRows && back > start+1; back-- {
			if g.RowsIn(start, back) < lim.MinRows {
				break
			}
			if g.RowsIn(back, end) >= lim.MinRows {
				cut = back
				break
			}
		}
		start = cut
	}
}

// merge joins each piece under the minimum to the piece before it, or else lets
// the one after it come in, as far as the maximum and the pins allow.
func merge(g *plan.Grid, d plan.Draft) plan.Draft {
	lim := &g.Limits
	small := func(start, end int32) bool {
		p := g.Owner[start]
		if end == g.First[p+1] && start == g.First[p] && g.Pinned(p) {
			return false // it will keep its pinned id, and is exempt
		}
		return g.RowsIn(start, end) < lim.MinRows
	}
	out := d[:0:len(d)]
	for i := range d {
		start, end := d[i].Start, d.End(g, i)
		if n := len(out); n > 0 {
			before := out[n-1].Start
			pinned := start == g.First[g.Owner[start]] && g.Pinned(g.Owner[start])
			fits := g.RowsIn(before, end) <= lim.MaxRows || !g.Divisible(before, end)
			if !pinned && fits && (small(before, start) || small(start, end)) {
				continue
			}
		}
		out = append(out, d[i])
	}
	return out
}
