package main

import (
	"cmp"
	"math"
	"math/rand"
	"slices"

	"github.com/MaxHalford/eaopt"
)

// solve lets all planners solve the problem, and returns the cost and the time of each planner.
func (p *problem) solve(seed uint64) []result {
	out := []result{
		timed("largest gain first", func() float64 { return p.checked(p.largest()) }),
		timed("greedy", func() float64 { return p.checked(p.greedy(newChoice(p), true)) }),
		timed("Lagrange", func() float64 {
			c, _ := p.lagrange(200)
			return p.checked(c)
		}),
		timed("genetic, 40 generations", func() float64 { return p.checked(p.genetic(seed, 40)) }),
		timed("genetic, 1,000 generations", func() float64 { return p.checked(p.genetic(seed, 1000)) }),
	}
	if p.nodes > 0 {
		out = append(out, timed("single changes, again and again", func() float64 {
			return p.checked(p.again(seed, 40))
		}))
	}
	if len(p.budgets) == 1 && p.nodes == 0 {
		out = append(out, timed("knapsack", func() float64 { return p.checked(p.knapsack()) }))
	}
	return out
}

// checked returns the cost of the choice c, computed anew. It panics if c breaks a budget or moves a range twice.
func (p *problem) checked(c *choice) float64 {
	d := newChoice(p)
	for i, o := range c.chosen {
		d.set(i, o)
	}
	if !d.allowed() {
		panic("a planner breaks a budget, or has moves meet")
	}
	return d.total()
}

// largest is the simplest planner. It goes through the windows by their gain, the largest gain first, and chooses for
// each window its own best plan, as long as the budgets last.
func (p *problem) largest() *choice {
	c := newChoice(p)
	best := make([]int, len(p.items))
	order := make([]int, len(p.items))
	for i, item := range p.items {
		order[i] = i
		for o := range item {
			if item[o].cost < item[best[i]].cost {
				best[i] = o
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		gain := func(i int) float64 { return p.items[i][0].cost - p.items[i][best[i]].cost }
		return cmp.Compare(gain(b), gain(a))
	})
	for _, i := range order {
		if c.fits(i, best[i]) {
			c.set(i, best[i])
		}
	}
	return c
}

// greedy is a planner that repeats the best change of a single item until no change lowers the cost. If perRow is true,
// the best change is the one with the largest gain per copied row. If perRow is false, it is the one with the largest
// gain.
func (p *problem) greedy(c *choice, perRow bool) *choice {
	for {
		best, item, option := 1e-6, -1, -1
		for i := range p.items {
			for o := range p.items[i] {
				if o == c.chosen[i] || !c.fits(i, o) {
					continue
				}
				gain := c.gain(i, o)
				if gain <= 1e-6 {
					continue
				}
				if rows := p.items[i][o].rows - p.items[i][c.chosen[i]].rows; perRow && rows > 0 {
					gain /= rows
				} else if perRow {
					gain *= 1e6 // for nothing
				}
				if gain > best {
					best, item, option = gain, i, o
				}
			}
		}
		if item < 0 {
			return c
		}
		c.set(item, option)
	}
}

// again is a planner that repeatedly makes single changes until no change lowers the cost. Each start is from the best
// choice so far with some random changes, and times is the number of starts. At first the loads of all nodes count, and
// at the end only the load of the hottest node. If only the hottest node counted from the beginning, no single change
// would help where several nodes are equally hot.
func (p *problem) again(seed uint64, times int) *choice {
	rng := rand.New(rand.NewSource(int64(seed)))
	best := newChoice(p)
	improve := func(c *choice, powers ...float64) {
		for _, power := range powers {
			c.smooth = power
			p.greedy(c, false)
		}
		if c.total() < best.total() {
			best = c
		}
	}
	improve(newChoice(p), 2, 4, 8, 16, 32, 0)
	for range times {
		c := best.clone()
		for range 1 + rng.Intn(4) {
			i := rng.Intn(len(c.items))
			if o := rng.Intn(len(c.items[i])); c.fits(i, o) {
				c.set(i, o)
			}
		}
		improve(c, 16, 0)
	}
	return best
}

// relaxed solves the problem with prices for rows and for load, instead of the budgets and the hottest node. The
// windows are then independent, except for border ranges that two neighbours move, and dynamic programming finds the
// cheapest choice. value is the cost of that choice, which is a lower bound of the cost of the problem.
func (p *problem) relaxed(rows, loads []float64) (chosen []int, value float64) {
	n := len(p.items)
	type state struct {
		value  float64
		option int
		before int
	}
	// [1]: the window takes in the range above it.
	states := make([][2]state, n)
	for i, item := range p.items {
		states[i] = [2]state{{value: math.Inf(1)}, {value: math.Inf(1)}}
		for o := range item {
			x := &item[o]
			price := x.cost + rows[x.wave]*x.rows
			for _, l := range x.loads {
				for k := range copies {
					price += loads[(l.node+k)%p.nodes] * l.writes
				}
			}
			has := 0
			if x.right {
				has = 1
			}
			for before := range 2 {
				from := 0.0
				if i > 0 {
					from = states[i-1][before].value
				} else if before == 1 {
					continue
				}
				if before == 1 && x.left {
					continue
				}
				if v := from + price; v < states[i][has].value {
					states[i][has] = state{v, o, before}
				}
			}
		}
	}
	has := 0
	if states[n-1][1].value < states[n-1][0].value {
		has = 1
	}
	value = states[n-1][has].value
	chosen = make([]int, n)
	for i := n - 1; i >= 0; i-- {
		s := states[i][has]
		chosen[i], has = s.option, s.before
	}
	for w, price := range rows {
		if price > 0 {
			value -= price * p.budgets[w]
		}
	}
	return chosen, value - p.heat
}

// lagrange is a planner that raises the prices of scarce rows and nodes step by step (the subgradient method). By weak
// duality each step gives a lower bound, and a choice, which is repaired to keep to the budgets. The best choice is
// then improved by single changes.
func (p *problem) lagrange(steps int) (best *choice, bound float64) {
	bound = math.Inf(-1)
	rows, loads := make([]float64, len(p.budgets)), make([]float64, p.nodes)
	hot := make([]float64, p.nodes)
	for n := range loads {
		loads[n] = p.heat / p.mean / float64(p.nodes)
	}
	least := math.Inf(1)
	for step := range steps {
		chosen, value := p.relaxed(rows, loads)
		bound = max(bound, value)
		c := newChoice(p)
		for i, o := range chosen {
			c.set(i, o)
		}
		size := 2 / math.Sqrt(float64(step+1))
		for w := range rows {
			if !math.IsInf(p.budgets[w], 1) {
				rows[w] = max(0, rows[w]+0.5*size*(c.used[w]/p.budgets[w]-1))
			}
		}
		if p.nodes > 0 {
			sum := 0.0
			for n := range hot {
				hot[n] += size * (c.at[n]/p.mean - 1)
				sum += math.Exp(hot[n])
			}
			for n := range hot {
				loads[n] = p.heat / p.mean * math.Exp(hot[n]) / sum
			}
		}
		c.repair()
		if t := c.total(); t < least {
			best, least = c, t
		}
	}
	return p.greedy(best, false), bound
}

// repair makes the choice keep to the budgets, by undoing options, those with the least gain per row first. If two
// neighbours move the same range, repair undoes the option of one of them.
func (c *choice) repair() {
	for i := range c.items {
		if c.meets(i, c.chosen[i]) {
			c.set(i, 0)
		}
	}
	for w := range c.used {
		for c.used[w] > c.budgets[w]+1e-6 {
			worst, item := math.Inf(1), -1
			for i := range c.items {
				if x := &c.items[i][c.chosen[i]]; x.wave == w && x.rows > 0 {
					if per := (c.items[i][0].cost - x.cost) / x.rows; per < worst {
						worst, item = per, i
					}
				}
			}
			c.set(item, 0)
		}
	}
}

// bound returns a lower bound of the cost of any choice.
func (p *problem) bound() float64 {
	_, bound := p.lagrange(3000)
	return bound
}

// knapsack is a planner for problems with one budget. It finds the best choice by dynamic programming, with numbers of
// rows rounded up to multiples of 1/5,000 of the budget.
func (p *problem) knapsack() *choice {
	const units = 5000
	best := make([]float64, units+1)
	took := make([][]int16, len(p.items))
	for i, item := range p.items {
		next := make([]float64, units+1)
		took[i] = make([]int16, units+1)
		for u := range next {
			next[u] = math.Inf(1)
			for o := range item {
				need := int(math.Ceil(item[o].rows / p.budgets[0] * units))
				if need <= u && best[u-need]+item[o].cost < next[u] {
					next[u], took[i][u] = best[u-need]+item[o].cost, int16(o)
				}
			}
		}
		best = next
	}
	c := newChoice(p)
	u := units
	for i := len(p.items) - 1; i >= 0; i-- {
		o := int(took[i][u])
		c.set(i, o)
		u -= int(math.Ceil(p.items[i][o].rows / p.budgets[0] * units))
	}
	return c
}

// genome is a choice of options that the genetic algorithm changes.
type genome struct{ *choice }

// Evaluate returns the total cost of the choice, which the genetic algorithm minimises. The error is always nil.
func (g *genome) Evaluate() (float64, error) { return g.total(), nil }

// Mutate makes one to three random changes of the choice. Then it tries further random changes, and keeps those that
// lower the cost.
func (g *genome) Mutate(rng *rand.Rand) {
	c := g.choice
	for range 1 + rng.Intn(3) {
		i := rng.Intn(len(c.items))
		if o := rng.Intn(len(c.items[i])); c.fits(i, o) {
			c.set(i, o)
		} else {
			c.set(i, 0)
		}
	}
	for range 20 + len(c.items)/2 {
		i := rng.Intn(len(c.items))
		if o := rng.Intn(len(c.items[i])); c.fits(i, o) && c.gain(i, o) > 0 {
			c.set(i, o)
		}
	}
}

// Crossover exchanges the options of a random run of successive items with the genome other, and repairs both choices.
func (g *genome) Crossover(other eaopt.Genome, rng *rand.Rand) {
	o := other.(*genome)
	from, to := rng.Intn(len(g.chosen)+1), rng.Intn(len(g.chosen)+1)
	for i := min(from, to); i < max(from, to); i++ {
		a, b := g.chosen[i], o.chosen[i]
		g.set(i, b)
		o.set(i, a)
	}
	g.repair()
	o.repair()
}

// Clone returns a copy of the genome.
func (g *genome) Clone() eaopt.Genome { return &genome{g.choice.clone()} }

// genetic is a planner that improves the choices of the two simplest planners, and the choices in more, by a genetic
// algorithm. The settings are those of package genetic. generations is the number of steps.
func (p *problem) genetic(seed uint64, generations int, more ...*choice) *choice {
	seeds := append([]*choice{p.largest(), p.greedy(newChoice(p), true), newChoice(p)}, more...)
	next := 0
	ga, err := eaopt.GAConfig{
		NPops: 1, PopSize: 24, NGenerations: uint(generations), HofSize: 1,
		Model: eaopt.ModDownToSize{
			NOffsprings: 24, SelectorA: eaopt.SelTournament{NContestants: 3}, SelectorB: eaopt.SelElitism{},
			MutRate: 0.9, CrossRate: 0.5,
		},
		RNG: rand.New(rand.NewSource(int64(seed))),
	}.NewGA()
	if err != nil {
		panic(err) // the settings are wrong
	}
	err = ga.Minimize(func(rng *rand.Rand) eaopt.Genome {
		fresh := &genome{seeds[next%len(seeds)].clone()}
		if next++; next > len(seeds) {
			fresh.Mutate(rng)
		}
		return fresh
	})
	if err != nil {
		panic(err) // genomes don't fail
	}
	return ga.HallOfFame[0].Genome.(*genome).choice
}
