package genetic

import (
	"context"
	"math"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
)

func started(t *testing.T, seed uint64) *search {
	t.Helper()
	r := randv2.New(randv2.NewPCG(seed, 9))
	l, limits := plannertest.Small(r, 30)
	if seed%2 == 0 {
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 15
	}
	o := plan.Objective{Kind: plan.Full, Weights: plan.DefaultWeights}
	s, err := newSearch(context.Background(), plan.NewGrid(l, limits), o, Options{Seed: int64(seed), Generations: 10})
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
			for _, problem := range plan.Check(s.g.Layout, s.g.Limits, p) {
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
	for name, judge := range map[string]func(s *search, n int) float64{
		"each":      func(*search, int) float64 { panic("boom") },
		"one":       func(s *search, n int) float64 { return 1 / float64(n%7) },
		"sometimes": func(s *search, n int) float64 { return []float64{1, 2}[n%3] },
		"nan":       func(*search, int) float64 { return math.NaN() },
		"infinite":  func(*search, int) float64 { return math.Inf(1) },
	} {
		s := started(t, 4)
		require.NotEmpty(t, s.genes[0])
		n := 0
		s.judge = func([]gene) float64 { n++; return judge(s, n) }
		generations, err := s.run(context.Background())
		require.NoError(t, err, name)
		require.Equal(t, 10, generations, name)
		require.Positive(t, n)
		p := s.g.Plan(s.draft(), s.o)
		require.Empty(t, plan.Check(s.g.Layout, s.g.Limits, p), name)
		require.Equal(t, name == "each" || name == "sometimes", s.failures > 0, name)
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
