// Package genetic plans for the full objective by an evolutionary search.
//
// It starts from three seeds: the present layout, the greedy plan, and the plan that moves the fewest rows. It evolves
// the seeds with github.com/MaxHalford/eaopt. The seeds matter more than the generations: without them the search ends
// far above the optimum. The result is never worse than the best seed. The search improves what the seeds ignore: load,
// growth, evenness.
//
// Only the parts of a bucket that can improve evolve; the rest of a large layout stays (see search.freeze).
//
// Where not too many ranges have to be tried, package exact finds the optimum: BenchmarkQuality in package planner
// compares with it. Blind crossover and mutation improved 1,000 partitions by 0.3 % in two seconds, where 8 % were
// possible; hence the hill climbing (see editor.climb).
package genetic

import (
	"context"
	"fmt"
	"math"
	"math/rand"

	"github.com/MaxHalford/eaopt"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Options are the settings of the genetic planner's search. The same options, layout, limits and objective give the
// same plan, if Stop does not end the search. To repeat a search that Stop ended, set Generations to Plan.Generations
// of its plan.
type Options struct {
	// Seed is the seed of the random numbers.
	Seed int64
	// Generations is the largest number of generations of the search. With 0 the search only compares the plans with
	// which it begins, and a few variations of them.
	Generations int
	// Stop, if not nil, is called before each generation, and ends the search by returning true, e.g. after a time
	// limit. The package itself reads no clock.
	Stop func() bool
	// Patience is the number of generations without an improvement after which the search ends. 0 stands for 400.
	Patience int
}

const (
	defaultPatience = 400

	population = 24
	crowd      = 8    // the population where genomes have more than `large` genes
	large      = 5000 // genes; each generation of such genomes takes long
	contest    = 3
	mutate     = 0.9
	cross      = 0.5
	climbs     = 20 // changes that a climb tries at least
	climbShare = 2  // a climb tries one more change for each climbShare genes
	climbMost  = 4000
)

// Planner is the genetic planner. It changes candidate plans at random, from generation to generation, and keeps the
// best.
type Planner struct{ Options Options }

// Plan returns the best plan that the search has found for the layout l under the objective o, as rebalance.Planner
// says. The plan has the seed and the number of generations, so that it can be made again.
func (p Planner) Plan(
	ctx context.Context, l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective,
) (*rebalance.Plan, error) {
	g := grid.New(l, limits)
	s, err := newSearch(ctx, g, o, p.Options)
	if err != nil {
		return nil, err
	}
	generations, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	plan := g.Plan(s.draft(), o)
	plan.Planner, plan.Seed, plan.Generations = "genetic", &s.options.Seed, &generations
	if s.failures > 0 {
		plan.Notes = append(plan.Notes, fmt.Sprintf(
			"The search failed in %d of its steps and went on without them; the first time with: %v",
			s.failures, s.failure))
	}
	return plan, nil
}

// search is one run of the genetic planner, which improves candidate plans from generation to generation. The library
// eaopt drives the run, and calls the methods of search from one goroutine at a time.
type search struct {
	g       *grid.Grid
	o       rebalance.Objective
	options Options

	seeds  []grid.Draft // drafts of the whole bucket; the first is today's
	genes  [][]gene     // the seeds as genes, restricted to the zones
	base   grid.Tally   // tally of all ranges outside the zones
	tally  grid.Tally
	frozen []bool // for each partition, whether it lies outside the zones
	scale  float64

	best        []gene
	bestFitness float64
	gained      uint // the generation of the last improvement

	failures int // number of contained panics, and the first of them
	failure  any
}

func newSearch(ctx context.Context, g *grid.Grid, o rebalance.Objective, options Options) (*search, error) {
	s := &search{g: g, o: o, options: options, base: grid.NewTally(g), bestFitness: math.Inf(1)}
	if s.options.Patience == 0 {
		s.options.Patience = defaultPatience
	}
	best, err := exact.Solve(ctx, g)
	if err != nil {
		return nil, err
	}
	s.seeds = append(s.seeds, g.Today(), greedy.Solve(g), best)
	s.freeze()
	for _, d := range s.seeds {
		s.genes = append(s.genes, s.encode(d))
	}
	s.scale = 1
	for _, d := range s.seeds {
		s.scale = max(s.scale, g.Score(d, o).Cost)
	}
	return s, nil
}

// run improves the candidate plans with which the search begins, from generation to generation. It returns the number
// of generations.
func (s *search) run(ctx context.Context) (generations int, err error) {
	// The last seed is the optimum of the rows objective.
	if len(s.genes[0]) == 0 || s.o.Kind == rebalance.Rows {
		return 0, nil
	}
	size := uint(population)
	if len(s.genes[0]) > large {
		size = crowd
	}
	next := 0
	newGenome := func(rng *rand.Rand) eaopt.Genome {
		i := next
		next++
		fresh := &genome{s, s.genes[i%len(s.genes)]}
		if i >= len(s.genes) {
			fresh.Mutate(rng)
		}
		return fresh
	}
	ga, err := eaopt.GAConfig{
		NPops:        1,
		PopSize:      size,
		NGenerations: uint(max(1, s.options.Generations)), // eaopt refuses 0, EarlyStop does not
		HofSize:      1,
		// Of eaopt's models this one keeps the best, and evaluates all offspring.
		Model: eaopt.ModDownToSize{
			NOffsprings: size,
			SelectorA:   eaopt.SelTournament{NContestants: contest},
			SelectorB:   eaopt.SelElitism{},
			MutRate:     mutate,
			CrossRate:   cross,
		},
		RNG: rand.New(rand.NewSource(s.options.Seed)),
		EarlyStop: func(ga *eaopt.GA) bool {
			generations = int(ga.Generations)
			return generations >= s.options.Generations || ctx.Err() != nil ||
				ga.Generations-s.gained >= uint(s.options.Patience) || (s.options.Stop != nil && s.options.Stop())
		},
		Callback: func(ga *eaopt.GA) {
			generations = int(ga.Generations)
			if fittest := ga.HallOfFame[0]; fittest.Genome != nil && fittest.Fitness < s.bestFitness {
				s.bestFitness, s.gained = fittest.Fitness, ga.Generations
				s.best = fittest.Genome.(*genome).genes
			}
		},
	}.NewGA()
	if err != nil {
		return 0, err
	}
	if err := ga.Minimize(newGenome); err != nil {
		return 0, err
	}
	return generations, ctx.Err()
}

// draft returns the best plan of the search, in the short form of planners. It is the best plan of all generations, or
// one of the plans with which the search began if none is better.
func (s *search) draft() grid.Draft {
	best := s.seeds[0]
	score := s.g.Score(best, s.o)
	try := func(d grid.Draft) {
		if other := s.g.Score(d, s.o); other.Better(&score) {
			best, score = d, other
		}
	}
	for _, d := range s.seeds[1:] {
		try(d)
	}
	if s.best != nil {
		try(s.decode(s.best))
	}
	return best
}

// count returns the sums over all ranges of a plan, from which the plan's score is computed. The parameter genes has
// the ranges that the search may change. All other ranges, which the search leaves as they are, are counted as well.
func (s *search) count(genes []gene) grid.Tally {
	t := s.base
	for i := range genes {
		if !genes[i].wall {
			t.Add(genes[i].start, genes[i+1].start, genes[i].keep)
		}
	}
	return t
}

// overMax is what one range over the maximum number of rows adds to the fitness of a plan (a lower fitness is better).
// It is more than all ranges under the minimum together can add.
const overMax = 1e7

// fitness returns the number by which candidate plans are compared; lower is better. genes has the ranges of the plan.
// Ranges over the maximum number of rows count most, then ranges under the minimum. The cost counts least: it is
// squeezed into [0, 1), so that it weighs less than one range under the minimum.
func (s *search) fitness(genes []gene) float64 {
	t := s.count(genes)
	over, under, cost := t.Counts(s.o.Weights)
	cost /= s.scale
	return overMax*float64(over) + float64(under) + cost/(1+cost)
}
