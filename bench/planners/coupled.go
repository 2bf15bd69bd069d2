package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// A system says what couples the windows of a problem, so that they cannot be planned one by one. A window is a group
// of neighbouring ranges of keys that are planned together.
type system struct {
	// budget is the number of rows that may be copied in each wave, as a share of the rows that all windows together
	// want to copy. A wave is a group of plans that are carried out at the same time. 0 stands for no limit.
	budget float64
	// waves is the number of waves in which the plans are carried out, one wave after the other. 0 stands for one wave.
	// Before its wave, a window costs what it costs today.
	waves int
	// meet is true if two neighbouring windows must not both move the range at their common border.
	meet bool
	// nodes is the number of nodes that carry the load. The nodes form a ring, and each row is on three successive
	// nodes. 0 means that load does not count.
	nodes int
	// heat is the cost of a node with twice the mean load, as a multiple of the cost of copying all rows.
	heat float64
}

// copies is the number of nodes that have a copy of each row.
const copies = 3

// A problem is to choose one option for each item so that the costs of all options plus the cost of the hottest node
// are minimal. The choice must keep to the budgets, and must not move a range by two neighbours. An item is a window,
// which is a group of neighbouring ranges.
type problem struct {
	items   [][]option // the first option of each is to change nothing
	budgets []float64  // of rows, of each wave
	nodes   int
	mean    float64 // load of a node
	heat    float64 // cost of a node by how many times its load exceeds the mean
}

// option is one plan for a window, with the wave in which the plan is carried out, and the load of the nodes that hold
// the window's rows.
type option struct {
	cost, rows float64
	wave       int
	loads      []load
	// left and right are true if the plan moves rows of the window's first or last range.
	left, right bool
}

// load is the write load of one replica set, which is a node and the next nodes in the ring.
type load struct {
	node   int
	writes float64
}

// coupled returns a function that makes a random problem of coupled windows and solves the problem by all planners.
// windows is the number of windows, and c says what couples them.
func coupled(windows int, c system) func(r *rand.Rand, seed uint64) outcome {
	return func(r *rand.Rand, seed uint64) outcome {
		p := c.draw(r, windows)
		asIs := newChoice(p)
		return outcome{asIs: asIs.total(), bound: p.bound(), plans: p.solve(seed)}
	}
}

func (c *system) draw(r *rand.Rand, windows int) *problem {
	p := &problem{nodes: c.nodes}
	w := rebalance.Costs(maxRows).Weights
	all, wanted := 0.0, 0.0
	for range windows {
		l := neighbours(r, 3+r.IntN(4), 32)
		free := limits
		free.MinRows = 0 // a range too many has its rent
		g := grid.New(l, free)
		all += float64(l.Rows())
		homes := make([]int, len(l.Partitions))
		for i := range homes {
			if c.nodes > 0 {
				homes[i] = r.IntN(c.nodes)
			}
		}
		item := c.options(g, w, homes)
		least := slices.MinFunc(item, func(a, b option) int {
			if a.cost < b.cost {
				return -1
			}
			return 1
		})
		wanted += least.rows
		p.items = append(p.items, item)
		if c.nodes > 0 {
			p.mean += copies * g.WritesIn(0, int32(g.N)) / float64(c.nodes)
		}
	}
	if c.nodes > 0 {
		p.heat = c.heat * all
	}
	for range max(1, c.waves) {
		b := math.Inf(1)
		if c.budget > 0 {
			b = c.budget * wanted
		}
		p.budgets = append(p.budgets, b)
	}
	return p
}

// options returns the options for a window: the cheapest plans at several prices of copies, and plans that change a
// single range. A single range is moved, cut at a quarter, half or three quarters of its keys, or joined with the range
// before. Each plan occurs for each wave and for each node. homes is the node of each range.
func (c *system) options(g *grid.Grid, w rebalance.Weights, homes []int) []option {
	drafts := []grid.Draft{g.Today()}
	for _, dear := range []float64{1, 1.5, 2, 3, 5, 0.5} {
		x := w
		x.RowsMoved *= dear
		drafts = append(drafts, cheapest(g, x))
	}
	for i := range homes {
		if c.nodes > 0 {
			d := g.Today()
			d[i].Keep = false
			drafts = append(drafts, d)
		}
		for _, fresh := range []int{i, i + 1} {
			for _, part := range []int32{1, 2, 3} {
				at := g.First[i] + part*(g.First[i+1]-g.First[i])/4
				d := slices.Insert(g.Today(), i+1, grid.Piece{Start: at, Keep: true})
				d[fresh].Keep = false
				drafts = append(drafts, d)
			}
		}
		if i > 0 {
			d := slices.Delete(g.Today(), i, i+1)
			d[i-1].Keep = false
			drafts = append(drafts, d)
		}
	}
	copying := rebalance.Weights{RowsMoved: w.RowsMoved, Moves: w.Moves}
	w.RowsMoved, w.Moves = 0, 0
	standing := func(t grid.Tally) float64 {
		_, _, cost := t.Counts(w)
		return cost
	}
	var out []option
	today := 0.0
	for n, d := range drafts {
		if n > 0 && slices.ContainsFunc(drafts[:n], func(x grid.Draft) bool { return slices.Equal(x, d) }) {
			continue
		}
		t := grid.NewTally(g)
		o := option{}
		at := make([]float64, c.nodes) // by replica set
		fresh := 0.0
		for i, x := range d {
			start, end := x.Start, d.End(g, i)
			t.Add(start, end, x.Keep)
			if x.Keep && c.nodes > 0 {
				at[homes[g.Owner[start]]] += g.WritesIn(start, end)
				continue
			}
			if !x.Keep {
				o.rows += float64(g.RowsIn(start, end))
				fresh += g.WritesIn(start, end)
				o.left, o.right = o.left || start < g.First[1], o.right || end > g.First[len(homes)-1]
			}
		}
		if !c.meet {
			o.left, o.right = false, false
		}
		_, _, moving := t.Counts(copying)
		if n == 0 {
			today = standing(t)
		}
		waves := max(1, c.waves)
		if o.rows == 0 {
			waves = 1 // nothing moves
		}
		for wave := range waves {
			x := o
			waits := float64(wave) / float64(max(1, c.waves))
			x.wave, x.cost = wave, moving+waits*today+(1-waits)*standing(t)
			for to := range max(1, c.nodes) {
				y := x
				y.loads = nil
				for node, writes := range at {
					if node == to {
						writes += fresh
					}
					if writes > 0 {
						y.loads = append(y.loads, load{node, writes})
					}
				}
				out = append(out, y)
				if o.rows == 0 {
					break
				}
			}
		}
	}
	return out
}

// choice is one option for each item of a problem, with the resulting cost.
type choice struct {
	*problem
	chosen []int
	cost   float64   // of the options
	used   []float64 // of the budgets
	at     []float64 // load of each node
	// smooth is the power of a mean of all nodes' loads, which replaces the load of the hottest node in the total cost.
	// 0 means that only the hottest node counts.
	smooth float64
}

func newChoice(p *problem) *choice {
	c := &choice{problem: p, chosen: make([]int, len(p.items)), used: make([]float64, len(p.budgets)),
		at: make([]float64, p.nodes)}
	for i := range p.items {
		c.count(i, 1)
	}
	return c
}

func (c *choice) clone() *choice {
	d := *c
	d.chosen, d.used, d.at = slices.Clone(c.chosen), slices.Clone(c.used), slices.Clone(c.at)
	return &d
}

func (c *choice) count(i int, sign float64) {
	o := &c.items[i][c.chosen[i]]
	c.cost += sign * o.cost
	c.used[o.wave] += sign * o.rows
	for _, l := range o.loads {
		for k := range copies {
			c.at[(l.node+k)%c.nodes] += sign * l.writes
		}
	}
}

// set chooses the option o for the item i, and updates the costs.
func (c *choice) set(i, o int) {
	c.count(i, -1)
	c.chosen[i] = o
	c.count(i, 1)
}

// meets reports whether the option o of the item i moves a border range that the chosen option of a neighbour moves,
// too.
func (c *choice) meets(i, o int) bool {
	x := &c.items[i][o]
	return x.left && i > 0 && c.items[i-1][c.chosen[i-1]].right ||
		x.right && i+1 < len(c.items) && c.items[i+1][c.chosen[i+1]].left
}

// fits reports whether the option o of the item i can be chosen: the budgets are kept, and no range is moved by two
// neighbours.
func (c *choice) fits(i, o int) bool {
	x, was := &c.items[i][o], &c.items[i][c.chosen[i]]
	used := c.used[x.wave] + x.rows
	if was.wave == x.wave {
		used -= was.rows
	}
	return used <= c.budgets[x.wave]+1e-6 && !c.meets(i, o)
}

// total returns the cost of the choice, in rows: the cost of all options, and that of the load of the nodes.
func (c *choice) total() float64 {
	if c.nodes == 0 {
		return c.cost
	}
	if c.smooth > 0 {
		sum := 0.0
		for _, x := range c.at {
			sum += math.Pow(x/c.mean, c.smooth)
		}
		return c.cost + c.heat*(math.Pow(sum/float64(c.nodes), 1/c.smooth)-1)
	}
	return c.cost + c.heat*(slices.Max(c.at)/c.mean-1)
}

// gain returns by how much the total cost falls if the option o is chosen for the item i. A negative gain is a higher
// cost.
func (c *choice) gain(i, o int) float64 {
	before, was := c.total(), c.chosen[i]
	c.set(i, o)
	after := c.total()
	c.set(i, was)
	return before - after
}

// allowed reports whether the choice keeps to the budgets, and moves no range by two neighbours. It checks all items
// anew.
func (c *choice) allowed() bool {
	for i := range c.items {
		if c.meets(i, c.chosen[i]) {
			return false
		}
	}
	for w := range c.used {
		if c.used[w] > c.budgets[w]+1e-3 {
			return false
		}
	}
	return true
}
