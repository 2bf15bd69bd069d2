package genetic

import (
	"context"
	"math"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

func started(t *testing.T, seed uint64) *search {
	t.Helper()
	r := randv2.New(randv2.NewPCG(seed, 9))
	l, limits := plannertest.Small(r, 30)
	if seed%2 == 0 {
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 15
	}
	o := rebalance.Costs(limits.MaxRows)
	s, err := newSearch(context.Background(), grid.New(l, limits), o, Options{Seed: int64(seed), Generations: 10})
	require.NoError(t, err)
	return s
}

// Seeds survive the way into genes and back, and the fitness that evolution sees
// orders drafts like the objective.
func TestGenesMeanTheirDraft(t *testing.T) {
	for seed := range uint64(150) {
		s := started(t, seed)
		if len(s.genes[0]) == 0 {
			continue
		}
		for i, d := range s.seeds {
			require.Equal(t, s.g.Score(d, s.o), s.g.Score(s.decode(s.genes[i]), s.o), "seed %d, draft %d", seed, i)
		}
		rng := rand.New(rand.NewSource(int64(seed)))
		all := s.genes
		for range 10 {
			g := &genome{s, all[rng.Intn(len(all))]}
			g.Mutate(rng)
			all = append(all, g.genes)
		}
		for _, x := range all {
			for _, y := range all {
				a, b := s.g.Score(s.decode(x), s.o), s.g.Score(s.decode(y), s.o)
				if a.Better(&b) && math.Abs(b.Cost-a.Cost) > 1e-6*a.Cost {
					require.Less(t, s.fitness(x), s.fitness(y), "seed %d", seed)
				}
			}
		}
	}
}

// Operators change their receiver only, and what they make is a draft that keeps
// the rules.
func TestOperators(t *testing.T) {
	for seed := range uint64(150) {
		s := started(t, seed)
		if len(s.genes[0]) == 0 {
			continue
		}
		rng := rand.New(rand.NewSource(int64(seed)))
		a, b := &genome{s, s.genes[0]}, &genome{s, s.genes[len(s.genes)-1]}
		for range 60 {
			was, mate := slices.Clone(a.genes), slices.Clone(b.genes)
			before, clone := a.genes, a.Clone().(*genome)
			if rng.Intn(2) == 0 {
				a.Mutate(rng)
			} else {
				a.Crossover(b, rng)
			}
			require.Equal(t, was, before, "seed %d: genes changed that others share", seed)
			require.Equal(t, was, clone.genes, "seed %d: the clone changed", seed)
			require.Equal(t, mate, b.genes, "seed %d: the mate changed", seed)
			p := s.g.Plan(s.decode(a.genes), s.o)
			for _, problem := range rebalance.Check(s.g.Layout, s.g.Limits, p) {
				// A genome may be over the maximum: that is for the fitness to punish.
				require.Contains(t, problem.Text, "and can be divided", "seed %d: %s", seed, problem)
			}
			a, b = b, a
		}
		require.Zero(t, s.failures, "seed %d: %v", seed, s.failure)
	}
}

// eaopt evaluates in goroutines of its own, where a panic ends the process.
func TestPanicsAreContained(t *testing.T) {
	for name, c := range map[string]struct {
		fails bool
		spoil func(s *search)
	}{
		"each evaluation panics": {true, func(s *search) { s.base = grid.Tally{} }},
		"some evaluations panic": {true, func(s *search) {
			s.genes = append(s.genes, []gene{{start: 1 << 30}, {start: 1 << 30}, {start: 1 << 30}})
		}},
		"fitness is NaN":       {false, func(s *search) { s.scale = math.NaN() }},
		"costs are infinite":   {false, func(s *search) { s.scale = 0 }},
		"costs are negative":   {false, func(s *search) { s.scale = -1 }},
		"fitness has no order": {false, func(s *search) { s.o.Weights.Spread = math.Inf(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, 4)
			require.NotEmpty(t, s.genes[0])
			c.spoil(s)
			generations, err := s.run(context.Background())
			require.NoError(t, err)
			require.Equal(t, 10, generations)
			require.Equal(t, c.fails, s.failures > 0)
			if c.fails {
				require.NotNil(t, s.failure)
			}
			p := s.g.Plan(s.draft(), s.o)
			require.Empty(t, rebalance.Check(s.g.Layout, s.g.Limits, p))
		})
	}

	s := started(t, 4)
	broken := &genome{s, []gene{{start: 1 << 30}, {start: 1 << 30}, {start: 1 << 30}}}
	rng := rand.New(rand.NewSource(1))
	broken.Mutate(rng)
	broken.Crossover(&genome{s, nil}, rng)
	_, err := broken.Evaluate()
	require.NoError(t, err)
	require.Positive(t, s.failures)
}
