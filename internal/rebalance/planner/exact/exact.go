// Package exact finds the best plan by dynamic programming: under the rows
// objective in time linear in the layout, under the full one in time quadratic in
// the quanta of a range (see Cheapest).
//
// Walking through the positions at which a cut may lie, it knows for each the
// best way to plan everything below, in two variants: the partition that the cut
// divides has kept its id already, or it has not. That one bit is all that later
// choices depend on, since an old id keeps at most one part of its own range.
//
// Under the rows objective the first criterion, nothing over the maximum that can be divided, is met
// always: cutting at every position meets it, and pins only ask for cuts. The
// others (ranges under the minimum, rows moved, ranges, squared deviation) are
// sums over ranges, compared in that order, so that the best of each prefix is
// enough.
//
// It plans the whole bucket at once. To plan the neighbourhoods of bad partitions one
// by one would not be optimal: a chain of small partitions, each of which takes rows
// from the next, can be arbitrarily long.
package exact

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
)

// Planner is the exact planner. It finds the optimum, except under the full
// objective where there are too many ranges to try (see Few): there it moves the
// fewest rows.
type Planner struct{}

// Plan implements rebalance.Planner.
func (Planner) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	g := plan.NewGrid(l, limits)
	whole := o.Kind == plan.Rows || Few(g)
	var d plan.Draft
	var err error
	if o.Kind == plan.Full && whole {
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
		p.Notes = append(p.Notes, "There are too many ways to cut: this plan moves the fewest rows, whatever else it costs.")
	}
	return p, nil
}

// LowerBound implements rebalance.Bounder.
func (Planner) LowerBound(ctx context.Context, l *plan.Layout, limits plan.Limits) (rows int64, under int, err error) {
	g := plan.NewGrid(l, limits)
	dp := newProgramme(g)
	if err := dp.run(ctx); err != nil {
		return 0, 0, err
	}
	end := &dp.none[g.N]
	return g.Rows[g.N] - end.kept, int(end.under), nil
}

// Solve returns the best draft for a grid under the rows objective. It fails
// only when ctx ends.
func Solve(ctx context.Context, g *plan.Grid) (plan.Draft, error) {
	dp := newProgramme(g)
	if err := dp.run(ctx); err != nil {
		return nil, err
	}
	d := dp.draft()
	tidy(g, d)
	return d, nil
}
