package planner

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/rebalance"
)

// checked is a planner that lets another planner make its plans, and checks them by rebalance.Check. It refuses layouts
// that no planner can work with. It also fills in how many more rows a plan moves than any plan must.
type checked struct{ by rebalance.Planner }

// Plan returns a plan of the other planner with its Optimality. It fails with rebalance.Problems if the layout or the
// limits are invalid. If the plan has faults, because the other planner has a bug, it fails with an error that wraps
// rebalance.Problems.
func (c checked) Plan(
	ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) (*rebalance.Plan, error) {
	if problems := rebalance.Validate(l, limits); len(problems) > 0 {
		return nil, problems
	}
	if o.Kind != rebalance.Rows && o.Kind != rebalance.Full {
		return nil, fmt.Errorf("no objective is called %q: there are %s and %s", o.Kind, rebalance.Rows, rebalance.Full)
	}
	p, err := c.by.Plan(ctx, l, limits, o)
	if err != nil {
		return nil, err
	}
	if problems := rebalance.Check(l, limits, p); len(problems) > 0 {
		return nil, fmt.Errorf("planner %s made a plan that breaks the rules: %w", p.Planner, problems)
	}
	bound, under := p.RowsMoved, p.Score.UnderMin
	if _, best := c.by.(exact.Planner); !best || o.Kind != rebalance.Rows { // else the plan meets the bound
		if bound, under, err = exact.LowerBound(ctx, l, limits); err != nil {
			return nil, err
		}
	}
	if p.Score.UnderMin != under {
		limits.MinRows = 0
		if bound, _, err = exact.LowerBound(ctx, l, limits); err != nil {
			return nil, err
		}
	}
	p.Optimality = rebalance.Optimality{LowerBound: bound, Gap: float64(p.RowsMoved-bound) / float64(max(bound, 1))}
	return p, nil
}
