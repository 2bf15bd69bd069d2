// Package auto makes planners by name, each held to the rules and compared with
// the lower bound, and chooses one where nobody wants to.
package auto

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/cut"
	"github.com/evenkeel/evenkeel/rebalance/exact"
	"github.com/evenkeel/evenkeel/rebalance/genetic"
	"github.com/evenkeel/evenkeel/rebalance/greedy"
)

// Names are the planners that New knows.
var Names = []string{"exact", "greedy", "genetic", "auto"}

// New returns a planner by its name. Plans of every planner pass
// rebalance.Check, and say how far they are from the fewest rows that could be
// moved. The options are those of the genetic planner.
func New(name string, o genetic.Options) (rebalance.Planner, error) {
	var p rebalance.Planner
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
	return rebalance.Checked(p, exact.Planner{}), nil
}

// chooser is auto: where only rows matter the exact planner finds the optimum in
// no time; else the genetic one has it among its seeds.
type chooser struct{ genetic *genetic.Planner }

func (c *chooser) Plan(ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective) (*rebalance.Plan, error) {
	if o.Kind == rebalance.Rows {
		return exact.Planner{}.Plan(ctx, l, limits, o)
	}
	return c.genetic.Plan(ctx, l, limits, o)
}

// DefaultCutter is the one that did best in simulation (docs/policy.md).
const DefaultCutter = "genetic"

// cutGenerations bound the search for one zone, so that it takes some milliseconds
// and the same zone gives the same cuts.
const (
	cutGenerations = 40
	cutPatience    = 12
)

// Cutters are the names that Cutter knows.
func Cutters() []string { return append([]string{"even"}, Names...) }

// Cutter returns what cuts ranges when they are split or merged, by its name: even,
// or a planner. The seed is that of the genetic planner.
func Cutter(name string, seed int64) (cut.Cutter, error) {
	if name == "even" {
		return cut.Even{}, nil
	}
	if !slices.Contains(Names, name) {
		return nil, fmt.Errorf("nothing that cuts is called %q: there are %s", name, strings.Join(Cutters(), ", "))
	}
	p, err := New(name, genetic.Options{Seed: seed, Generations: cutGenerations, Patience: cutPatience})
	if err != nil {
		return nil, err
	}
	return cut.Planned{Planner: p}, nil
}
