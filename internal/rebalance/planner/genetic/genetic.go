// Package genetic plans for the full objective, by evolution.
//
// It starts from seeds (today's layout, the greedy plan, the exact plan) and
// evolves them with github.com/MaxHalford/eaopt. The seeds matter more than the
// generations: without them it ends far above the optimum. So it is never worse
// than its best seed, and looks for what the seeds do not see: load, growth,
// evenness.
//
// Only the parts of a bucket in which something could be better evolve; the rest
// of a large layout stays as it is (see zones).
//
// A dynamic programme finds the optimum, in time quadratic in the quanta of a range:
// too slow to plan by, it is the yardstick of BenchmarkQuality in package planner. Blind
// crossover and mutation alone improved 1,000 partitions by 0.3 % in two seconds, where 8 % were
// possible; with climbing (see editor.climb) they end 1 % above the least cost.
package genetic

import (
	"context"
	"fmt"
	"math"
	"math/rand"

	"github.com/MaxHalford/eaopt"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
)

// Options say how long and how to search. The same options, layout, limits and
// objective make the same plan, unless Stop ends the search: then the plan says
// after how many generations, and so many make it again.
type Options struct {
	// Seed is that of all chance.
	Seed int64
	// Generations are the most there may be; with 0 the plan is the best of the
	// seeds and of a few variations of them.
	Generations int
	// Stop, if not nil, is asked before each generation and ends the search by
	// returning true. It is how a time limit comes in: this package knows no time.
	Stop func() bool
	// Patience is how many generations without any gain end the search; 0 is
	// DefaultPatience.
	Patience int
	// WithoutExact leaves the exact plan out of the seeds, to measure what the
	// search finds by itself.
	WithoutExact bool
}

const (
	// DefaultGenerations are more than most layouts need until patience ends.
	DefaultGenerations = 2000
	// DefaultPatience is how long the last gains take to come.
	DefaultPatience = 400

	population = 24
	crowd      = 8    // the population of genomes so large
	large      = 5000 // that each one takes its time: a generation should not
	contest    = 3
	mutate     = 0.9
	cross      = 0.5
	climbs     = 20 // the changes that a climb tries, and one more
	climbShare = 2  // for so many genes
	climbMost  = 4000
)

// Planner is the genetic planner.
type Planner struct{ Options Options }

// Plan implements rebalance.Planner.
func (p Planner) Plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	g := plan.NewGrid(l, limits)
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
		plan.Notes = append(plan.Notes, fmt.Sprintf("The search failed in %d of its steps and went on without them; the first time with: %v", s.failures, s.failure))
	}
	return plan, nil
}

// search is one run. eaopt calls it from one goroutine at a time.
type search struct {
	g       *plan.Grid
	o       plan.Objective
	options Options

	seeds  []plan.Draft // whole drafts, the first is today's
	genes  [][]gene     // the same in the zones
	base   plan.Tally   // everything outside the zones
	tally  plan.Tally
	frozen []bool // partition -> outside the zones
	scale  float64

	best        []gene
	bestFitness float64
	gained      uint // the generation of the last gain

	// judge is fitness; tests replace it.
	judge    func([]gene) float64
	failures int
	failure  any
}

func newSearch(ctx context.Context, g *plan.Grid, o plan.Objective, options Options) (*search, error) {
	s := &search{g: g, o: o, options: options, base: plan.NewTally(g), bestFitness: math.Inf(1)}
	if s.options.Patience == 0 {
		s.options.Patience = DefaultPatience
	}
	s.judge = s.fitness
	s.seeds = append(s.seeds, g.Today(), greedy.Solve(g))
	if !options.WithoutExact {
		d, err := exact.Solve(ctx, g)
		if err != nil {
			return nil, err
		}
		s.seeds = append(s.seeds, d)
	}
	s.freeze()
	for _, d := range s.seeds {
		s.genes = append(s.genes, s.encode(d))
	}
	s.scale = 1
	for _, d := range s.seeds {
		s.scale = max(s.scale, s.cost(g.Score(d, o)))
	}
	return s, nil
}

// run evolves the seeds and returns after how many generations it ended.
func (s *search) run(ctx context.Context) (generations int, err error) {
	// The exact plan is the optimum of the rows objective: nothing is to be found.
	if len(s.genes[0]) == 0 || (s.o.Kind == plan.Rows && !s.options.WithoutExact) {
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

// draft returns the best of what evolved and of the seeds as they were given.
func (s *search) draft() plan.Draft {
	best := s.seeds[0]
	score := s.g.Score(best, s.o)
	try := func(d plan.Draft) {
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

// cost makes one number of what the objective counts after the limits.
func (s *search) cost(score plan.Score) float64 {
	if s.o.Kind == plan.Full {
		return score.Cost
	}
	return float64(score.RowsMoved) + rangeRows*float64(score.Partitions)
}

// rangeRows is the little that a range costs under the rows objective: it comes
// after rows moved, as nearly as one number can say so.
const rangeRows = 0.01

// count returns the tally of all ranges: those of the genes and those outside the zones.
func (s *search) count(genes []gene) plan.Tally {
	t := s.base
	for i := range genes {
		if !genes[i].wall {
			t.Add(genes[i].start, genes[i+1].start, genes[i].keep)
		}
	}
	return t
}

// value returns the objective's value of a tally, as three numbers of which the first
// that differs decides.
func (s *search) value(t *plan.Tally) (over, under int, cost float64) {
	if s.o.Kind == plan.Full {
		return t.Counts(s.o.Weights)
	}
	score := t.Score(s.o)
	return score.OverMax, score.UnderMin, s.cost(score)
}

// overMax is worth more ranges under the minimum than there can be.
const overMax = 1e7

// fitness is less for better genes. It keeps the order of the objective: costs
// are squeezed into [0, 1), below one range under the minimum.
func (s *search) fitness(genes []gene) float64 {
	t := s.count(genes)
	over, under, cost := s.value(&t)
	cost /= s.scale
	return overMax*float64(over) + float64(under) + cost/(1+cost)
}
