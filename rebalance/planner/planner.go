// Package planner has the algorithms that make plans for package rebalance, by name.
//
// A planner gets a layout: a bucket, which is an ordered set of rows, with its partitions and their sizes at points
// within them. The planner returns a plan: better ranges within the given limits, and the moves that lead to them. This
// is a search among very many plans. The planners differ in how thorough they are, and in how long they take:
//
//	p, err := planner.New("auto", planner.Options{Seed: 1, Generations: 1000})
//	if err != nil {
//		return err
//	}
//	plan, err := p.Plan(ctx, layout, limits, rebalance.Objective{Kind: rebalance.Rows})
//
// # Planners
//
// "exact" finds the best plan there is, by dynamic programming. It walks through the keys at which a range may begin,
// and keeps the best plan of everything below each of them. Under the objective rebalance.Rows, its time is linear in
// the number of quanta, the points at which sizes were measured. Under rebalance.Full, its time grows with the number
// of ranges that are possible within MaxRows. Above 16 million such ranges, which take about a second, it returns the
// plan that moves the fewest rows instead, and a note of the plan says so.
//
// "greedy" cuts what is too large, then joins what is too small, and never reconsiders a choice. Its time is linear for
// every objective. Its plans move up to a third more rows than the best ones. It shows what reconsidering is worth.
//
// "genetic" changes candidate plans at random, and keeps the best ones. It is meant for the objective rebalance.Full
// where "exact" would take too long. It begins with today's layout, the plan of "greedy" and the plan that moves the
// fewest rows, and its plan is never worse than the best of them. Under rebalance.Rows it returns the last of them, as
// there is nothing to gain.
//
// "auto" is "exact" where that finds the best plan, and "genetic" elsewhere.
//
// # Promises
//
// Every plan was checked by rebalance.Check, which shares no code with the planners, and its Optimality compares the
// rows that it moves with the fewest that any plan must move. The same layout, limits, objective and options give the
// same plan; only a search that Options.Stop ended depends on the time. The seed and the number of
// generations in the plan repeat such a search.
//
// Plan fails with rebalance.Problems if the layout or the limits are invalid, with another error if there is no such
// objective, and with the error of its context if that ends. It does not fail because limits cannot be met: then it
// returns the best plan it finds, with notes.
//
// The planners may be used from several goroutines at once. They use one goroutine for each call, no clock, no global
// source of random numbers, and no I/O. They need memory in proportion to the layout: less than a kilobyte for each
// quantum.
//
// # Sources
//
// The sum of the squares of sizes, by which "exact" breaks ties, has the quadrangle inequality, so that each step of
// the dynamic program can be answered from the lower envelope of a few lines: see D. Eppstein, Z. Galil and
// R. Giancarlo, "Speeding up dynamic programming" (1988). The library github.com/MaxHalford/eaopt drives the genetic
// search.
package planner

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Options are the settings of the planner "genetic", and of "auto", which uses it. Other planners have no options.
type Options struct {
	// Seed is the seed of the random numbers.
	Seed int64
	// Generations is the largest number of generations of the search. With 0 the search only compares the plans with
	// which it begins, and a few variations of them.
	Generations int
	// Stop, if not nil, is called before each generation, and ends the search by returning true, e.g. after a time
	// limit. To repeat a search that Stop ended, set Generations to Plan.Generations of its plan.
	Stop func() bool
	// Patience is the number of generations without an improvement after which the search ends. 0 stands for 400.
	Patience int
}

// Names returns the names of the planners that New knows.
func Names() []string { return []string{"exact", "greedy", "genetic", "auto"} }

// New returns the planner with the given name, one of Names, or an error if the name is unknown.
func New(name string, o Options) (rebalance.Planner, error) {
	switch name {
	case "auto":
		return checked{auto{genetic.Planner{Options: genetic.Options(o)}}}, nil
	case "exact":
		return checked{exact.Planner{}}, nil
	case "greedy":
		return checked{greedy.Planner{}}, nil
	case "genetic":
		return checked{genetic.Planner{Options: genetic.Options(o)}}, nil
	}
	return nil, fmt.Errorf("no planner is called %q: there are %s", name, strings.Join(Names(), ", "))
}

// auto is the planner that chooses between two planners for each layout. Where the exact planner finds the best plan
// quickly, auto uses the exact planner, and elsewhere the genetic one.
type auto struct{ otherwise genetic.Planner }

// Plan returns a plan for the layout l by the exact planner if that is quick, and else by the genetic planner.
func (a auto) Plan(
	ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) (*rebalance.Plan, error) {
	if o.Kind == rebalance.Full && !exact.Few(grid.New(l, limits)) {
		return a.otherwise.Plan(ctx, l, limits, o)
	}
	return exact.Planner{}.Plan(ctx, l, limits, o)
}
