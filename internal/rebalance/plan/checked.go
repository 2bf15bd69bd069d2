package plan

import (
	"context"
	"fmt"
)

// A Bounder computes a lower bound: the fewest rows that any plan for a layout (a bucket's partitions) must move. It
// shows how far a plan is from the best one.
type Bounder interface {
	// LowerBound returns the fewest rows that a plan moves if all its ranges that can be divided are within the maximum
	// number of rows, and as few ranges as possible are under the minimum. The result under is this number of ranges.
	LowerBound(ctx context.Context, l *Layout, limits Limits) (rows int64, under int, err error)
}

// Checked returns a planner that makes plans with p and checks them with Check. If a plan has faults, p has a bug, and
// the planner returns an error that wraps Problems. The planner also fills in how many more rows each plan moves than
// b's lower bound.
//
// p and b must be comparable values. If they are equal, p's plans under the rows objective must meet the bound.
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
