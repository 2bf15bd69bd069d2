// Package planner returns planners by name. Each planner returned has its plans checked and compared with the lower
// bound.
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

// Names are the names of planners that New knows. A planner is an algorithm that computes better ranges for a bucket.
var Names = []string{"exact", "greedy", "genetic", "auto"}

// New returns the planner with the given name, one of Names, or an error if the name is unknown. The planner "auto" is
// the exact planner where that is quick (see exact.Few), and the genetic planner elsewhere. The plans of the returned
// planner are checked by plan.Check, and have their Optimality. The argument o has the options of the genetic planner.
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

// auto is the planner that chooses between two planners for each layout. Where the exact planner finds the best plan
// quickly, auto uses the exact planner, and elsewhere the genetic one.
type auto struct{ otherwise *genetic.Planner }

// Plan returns a plan for the layout l by the exact planner if that is quick, and else by the genetic planner.
func (a auto) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	if o.Kind == plan.Full && !exact.Few(plan.NewGrid(l, limits)) {
		return a.otherwise.Plan(ctx, l, limits, o)
	}
	return exact.Planner{}.Plan(ctx, l, limits, o)
}
