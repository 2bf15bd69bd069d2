// Package exact finds the best plan by dynamic programming. The time is linear in the layout under the rows objective,
// and quadratic in the quanta of a range under the full one (see Cheapest).
//
// The program walks through the positions at which a cut may lie. For each position it knows the best plan of
// everything below, in two variants: the partition that the position divides has already kept its id, or has not. Later
// choices depend on this one bit alone, since an old id keeps at most one part of its own range.
//
// Under the rows objective the first criterion, nothing over the maximum that can be divided, can always be met:
// cutting at every position meets it, and pins only ask for cuts. The other criteria (ranges under the minimum, rows
// moved, ranges, squared deviation) are sums over ranges, compared in that order. So the best plan of each prefix is
// enough.
//
// The whole bucket is planned at once. Planning the neighbourhood of each bad partition by itself would not be optimal:
// a chain of small partitions, each of which takes rows from the next, can be arbitrarily long.
package exact

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Planner is the exact planner, which finds the best plan by dynamic programming. Under the full objective it does so
// only if there are few enough ranges to try (see Few). If there are more, it returns the plan that moves the fewest
// rows.
type Planner struct{}

// Plan returns the best plan for the layout l under the objective o, as rebalance.Planner says. If there were too many
// ranges to try, a note of the plan says so.
func (Planner) Plan(
	ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) (*rebalance.Plan, error) {
	g := grid.New(l, limits)
	whole := o.Kind == rebalance.Rows || Few(g)
	var d grid.Draft
	var err error
	if o.Kind == rebalance.Full && whole {
		d, err = Cheapest(ctx, g, o.Weights)
	} else {
		d, err = Solve(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	p := g.Plan(d, o)
	p.Planner = "exact"
	if !whole {
		p.Notes = append(p.Notes,
			"There are too many ways to cut: this plan moves the fewest rows, whatever else it costs.")
	}
	return p, nil
}

// LowerBound returns a number of rows: every good plan for the layout l (a bucket's partitions) moves at least so many.
// In a good plan, no range that can be divided is over the maximum number of rows, and as few ranges as possible are
// under the minimum. The result under is the number of these ranges. The bound shows how far a plan is from the best
// one. LowerBound fails only when ctx ends.
func LowerBound(ctx context.Context, l *rebalance.Layout, limits rebalance.Limits) (rows int64, under int, err error) {
	g := grid.New(l, limits)
	dp := newProgramme(g)
	if err := dp.run(ctx); err != nil {
		return 0, 0, err
	}
	end := &dp.none[g.N]
	return g.Rows[g.N] - end.kept, int(end.under), nil
}

// Solve returns the best plan under the rows objective: the plan that keeps the limits and moves the fewest rows. The
// bounds of the plan's ranges are positions of g: indexes of keys at which ranges may begin. Solve fails only when ctx
// ends.
func Solve(ctx context.Context, g *grid.Grid) (grid.Draft, error) {
	dp := newProgramme(g)
	if err := dp.run(ctx); err != nil {
		return nil, err
	}
	d := dp.draft()
	tidy(g, d)
	return d, nil
}
