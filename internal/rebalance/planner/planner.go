// Package planner makes planners by name. It checks every plan and compares it with the
// lower bound.
package planner

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
)

// Names are those that New takes.
var Names = []string{"exact", "greedy", "genetic", "auto"}

// New returns a planner by its name; auto is the exact planner, and the genetic one for
// what exact.Few says is too much. Every plan passes plan.Check and has its Optimality.
// The options are those of the genetic planner.
func New(name string, o genetic.Options) (plan.Planner, error) {
	switch name {
	case "auto":
		return plan.Checked(auto{&genetic.Planner{Options: o}}, exact.Planner{}), nil
	case "exact":
		return plan.Checked(exact.Planner{}, exact.Planner{}), nil
	case "greedy":
		return plan.Checked(greedy.Planner{}, exact.Planner{}), nil
	case "genetic":
		return plan.Checked(&genetic.Planner{Options: o}, exact.Planner{}), nil
	}
	return nil, fmt.Errorf("no planner is called %q: there are %s", name, strings.Join(Names, ", "))
}

// auto is the exact planner where that finds the optimum.
type auto struct{ otherwise *genetic.Planner }

// Plan implements plan.Planner.
func (a auto) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	if o.Kind == plan.Full && !exact.Few(plan.NewGrid(l, limits)) {
		return a.otherwise.Plan(ctx, l, limits, o)
	}
	return exact.Planner{}.Plan(ctx, l, limits, o)
}
