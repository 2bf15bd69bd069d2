package genetic

import (
	"math"
	"math/rand"

	"github.com/MaxHalford/eaopt"
)

// genome is what eaopt evolves. Its genes are shared with clones: every change
// makes new ones, so that a clone is free and a crossover cannot touch its mate.
type genome struct {
	s     *search
	genes []gene
}

var _ eaopt.Genome = (*genome)(nil)

// Clone implements eaopt.Genome.
func (g *genome) Clone() eaopt.Genome { return &genome{g.s, g.genes} }

// Evaluate implements eaopt.Genome. eaopt runs it in another goroutine, where a panic would end
// the process, so it is contained here; genes that can't be evaluated are infinitely bad.
func (g *genome) Evaluate() (fitness float64, err error) {
	defer g.s.contain(func() { fitness = math.Inf(1) })
	if fitness = g.s.fitness(g.genes); math.IsNaN(fitness) {
		fitness = math.Inf(1) // NaN has no place in an order
	}
	return fitness, nil
}

// Mutate implements eaopt.Genome.
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

// Crossover implements eaopt.Genome: between two cuts that both parents have,
// the genes become those of the mate. Only the receiver changes.
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
	// The first and the last start are those of all genomes.
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

// contain is deferred: it ends a panic, remembers it for the plan's notes, and
// undoes what was begun.
func (s *search) contain(undo func()) {
	if p := recover(); p != nil {
		if s.failures == 0 {
			s.failure = p
		}
		s.failures++
		undo()
	}
}
