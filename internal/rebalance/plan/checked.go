package plan

import (
	"context"
	"fmt"
)

// A Bounder knows the fewest rows that any plan for a layout must move.
type Bounder interface {
	// LowerBound returns the fewest rows moved by plans that have nothing over the
	// maximum that can be divided and the fewest ranges under the minimum; under
	// is that fewest number.
	LowerBound(ctx context.Context, l *Layout, limits Limits) (rows int64, under int, err error)
}

// Checked returns a planner that plans with p, holds the plan to the rules
// whoever made it, and says how far from the bound it is. A plan that breaks a
// rule becomes an error that wraps Problems: it is a bug of the planner. Both
// must be comparable values; under the rows objective a planner
// that is its own bounder must meet the bound.
func Checked(p Planner, b Bounder) Planner { return checked{p, b} }

type checked struct {
	Planner
	Bounder
}

func (c checked) Plan(ctx context.Context, l *Layout, limits Limits, o Objective) (*Plan, error) {
	p, err := c.Planner.Plan(ctx, l, limits, o)
	if err != nil {
		return nil, err
	}
	if problems := Check(l, limits, p); len(problems) > 0 {
		return nil, fmt.Errorf("planner %s made a plan that breaks the rules: %w", p.Planner, problems)
	}
	bound, under := p.RowsMoved, p.Score.UnderMin
	if o.Kind != Rows || any(c.Planner) != any(c.Bounder) { // a planner that knows the bound also meets it
		if bound, under, err = c.LowerBound(ctx, l, limits); err != nil {
			return nil, err
		}
	}
	if p.Score.UnderMin != under {
		limits.MinRows = 0
		if bound, _, err = c.LowerBound(ctx, l, limits); err != nil {
			return nil, err
		}
	}
	p.Optimality = Optimality{LowerBound: bound, Gap: float64(p.RowsMoved-bound) / float64(max(bound, 1))}
	return p, nil
}
