// Package greedy plans in two passes that never reconsider a choice. The first pass cuts ranges that are too large at
// the maximum. The second joins ranges that are too small to a neighbour. The largest piece of each old partition keeps
// the id.
//
// The package shows the worth of reconsidering: on rows moved it ends about a tenth above the optimum. Its plan is also
// one of the seeds of the genetic planner.
package greedy

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Planner is the greedy planner: it splits ranges over the maximum number of rows, then merges ranges under the
// minimum. It makes the same plan for every objective.
type Planner struct{}

// Plan returns the greedy plan for the layout l, as rebalance.Planner says. The objective o only gives the plan its
// score.
func (Planner) Plan(
	ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) (*rebalance.Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := grid.New(l, limits)
	p := g.Plan(Solve(g), o)
	p.Planner = "greedy"
	return p, nil
}

// Solve returns the plan of the greedy planner in the short form of planners: as a list of ranges, whose bounds are
// indexes of keys in the grid g. The time is linear in the number of keys at which ranges may begin.
func Solve(g *grid.Grid) grid.Draft {
	var d grid.Draft
	for p := range int32(len(g.First) - 1) {
		d = split(g, d, g.First[p], g.First[p+1])
	}
	d = merge(g, d)
	d.KeepLargest(g)
	return d
}

// split divides the keys from position start to position end into ranges, and appends them to the plan d. A position is
// the index, in the grid g, of a key at which ranges may begin. Each range takes rows up to the maximum. If the last
// range would have too few rows, it takes some from the range before.
func split(g *grid.Grid, d grid.Draft, start, end int32) grid.Draft {
	lim := &g.Limits
	for {
		d = append(d, grid.Piece{Start: start})
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

// merge joins each range of the plan d that is under the minimum number of rows with the range before it, or else with
// the range after it, and returns the changed plan. It joins two ranges only if
//   - the joined range is within the maximum number of rows, or can't be divided, and
//   - the cut between the two is not pinned (a pinned cut must stay).
func merge(g *grid.Grid, d grid.Draft) grid.Draft {
	lim := &g.Limits
	small := func(start, end int32) bool {
		p := g.Owner[start]
		if end == g.First[p+1] && start == g.First[p] && g.Pinned(p) {
			return false // the piece will keep its pinned id, and is exempt
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
