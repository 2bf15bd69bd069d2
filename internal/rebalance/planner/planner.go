// Package planner makes planners by name. It checks every plan and compares it with the
// lower bound.
package planner

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
)

// Names are those that New takes.
var Names = []string{"exact", "greedy", "genetic", "auto"}

// New returns a planner for one kind of objective by its name; auto is the exact planner
// for plan.Rows, of which that finds the optimum, else the genetic one. Every plan passes
// plan.Check and has its Optimality. The options are those of the genetic planner.
func New(name string, kind plan.Kind, o genetic.Options) (plan.Planner, error) {
	if name == "auto" {
		if name = "genetic"; kind == plan.Rows {
			name = "exact"
		}
	}
	switch name {
	case "exact":
		return plan.Checked(exact.Planner{}, exact.Planner{}), nil
	case "greedy":
		return plan.Checked(greedy.Planner{}, exact.Planner{}), nil
	case "genetic":
		return plan.Checked(&genetic.Planner{Options: o}, exact.Planner{}), nil
	}
	return nil, fmt.Errorf("no planner is called %q: there are %s", name, strings.Join(Names, ", "))
}
