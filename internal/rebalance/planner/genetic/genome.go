package genetic

import (
	"math"
	"math/rand"

	"github.com/MaxHalford/eaopt"
)

// genome is one candidate plan that the library eaopt evolves, as a list of ranges (genes). A list is never changed:
// every change of the plan makes a new list. So clones can share a list.
type genome struct {
	s     *search
	genes []gene
}

var _ eaopt.Genome = (*genome)(nil)

// Clone returns a copy of the candidate plan, which shares the list of ranges. It implements eaopt.Genome.
func (g *genome) Clone() eaopt.Genome { return &genome{g.s, g.genes} }

// Evaluate returns the fitness of the candidate plan; lower is better. If the computation panics, Evaluate recovers and
// returns infinity. It implements eaopt.Genome.
func (g *genome) Evaluate() (fitness float64, err error) {
	// A panic in a goroutine of eaopt would end the process.
	defer g.s.contain(func() { fitness = math.Inf(1) })
	if fitness = g.s.fitness(g.genes); math.IsNaN(fitness) {
		fitness = math.Inf(1) // NaN has no place in an order
	}
	return fitness, nil
}

// Mutate changes the candidate plan at random: by a few changes, good or bad, or by many tries of which it keeps only
// the good ones. It implements eaopt.Genome.
func (g *genome) Mutate(rng *rand.Rand) {
	before := g.genes
	defer g.s.contain(func() { g.genes = before })
	e := editor{search: g.s, rng: rng, genes: append(make([]gene, 0, len(before)+4), before...)}
	e.look()
	if rng.Intn(2) == 0 {
		e.wander()
	} else {
		e.climb(min(climbs+len(before)/climbShare, climbMost))
	}
	g.genes = e.done()
}

// Crossover mixes two candidate plans, g and mate. It picks two cuts that both plans have, and replaces the ranges of g
// between these cuts by those of the mate. Only g changes. Crossover implements eaopt.Genome.
func (g *genome) Crossover(mate eaopt.Genome, rng *rand.Rand) {
	before := g.genes
	defer g.s.contain(func() { g.genes = before })
	a, b := g.genes, mate.(*genome).genes
	type pair struct{ i, j int }
	var common []pair
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].start < b[j].start:
			i++
		case a[i].start > b[j].start:
			j++
		default:
			common = append(common, pair{i, j})
			i++
			j++
		}
	}
	// All genomes have the first and the last start in common.
	from, to := rng.Intn(len(common)), rng.Intn(len(common))
	if from > to {
		from, to = to, from
	}
	if from == to {
		return
	}
	genes := make([]gene, 0, len(a)+len(b))
	genes = append(genes, a[:common[from].i]...)
	genes = append(genes, b[common[from].j:common[to].j]...)
	genes = append(genes, a[common[to].i:]...)
	e := editor{search: g.s, rng: rng, genes: genes}
	g.genes = e.done()
}

// contain recovers from a panic in one step of the search, and calls undo, which takes the step back. It must be called
// by defer. It remembers the first panic for the notes of the plan.
func (s *search) contain(undo func()) {
	if p := recover(); p != nil {
		if s.failures == 0 {
			s.failure = p
		}
		s.failures++
		undo()
	}
}
