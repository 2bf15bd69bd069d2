// Package planner makes planners by name, each held to the rules and compared with
// the lower bound, and chooses one where nobody wants to.
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

// Names are the planners that New knows.
var Names = []string{"exact", "greedy", "genetic", "auto"}

// New returns a planner by its name. Plans of every planner pass
// rebalance.Check, and say how far they are from the fewest rows that could be
// moved. The options are those of the genetic planner.
func New(name string, o genetic.Options) (plan.Planner, error) {
	var p plan.Planner
	switch name {
	case "exact":
		p = exact.Planner{}
	case "greedy":
		p = greedy.Planner{}
	case "genetic":
		p = &genetic.Planner{Options: o}
	case "auto":
		p = &chooser{&genetic.Planner{Options: o}}
	default:
		return nil, fmt.Errorf("no planner is called %q: there are %s", name, strings.Join(Names, ", "))
	}
	return plan.Checked(p, exact.Planner{}), nil
}

// chooser is auto: where only rows matter the exact planner finds the optimum in
// no time; else the genetic one has it among its seeds.
type chooser struct{ genetic *genetic.Planner }

func (c *chooser) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	if o.Kind == plan.Rows {
		return exact.Planner{}.Plan(ctx, l, limits, o)
	}
	return c.genetic.Plan(ctx, l, limits, o)
}
