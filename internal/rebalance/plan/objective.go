package plan

import (
	"encoding/json"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/rebalance/plannermath"
)

// A Kind of objective.
type Kind string

const (
	// Rows counts, in this order: ranges over the maximum that can be divided,
	// ranges under the minimum, rows moved, partitions, squared deviation from
	// the target. The exact planner finds its optimum.
	Rows Kind = "rows"
	// Full counts, in this order: ranges over the maximum that can be divided,
	// ranges under the minimum, and the weighted sum of all that Weights names.
	Full Kind = "full"
)

// An Objective says which of two plans is the better.
type Objective struct {
	Kind Kind
	// Weights are those of Full; Rows has none.
	Weights Weights
}

// Weights make the terms of the full objective comparable: each product of a
// weight and its term is in rows, "as bad as moving so many rows".
type Weights struct {
	// RowsMoved weighs each row that changes partition.
	RowsMoved float64
	// Moves weighs each move: its swaps, its waits and its share of a batch.
	Moves float64
	// Spread weighs the sum over ranges of (rows - target)^2 / target.
	Spread float64
	// Forecast weighs the rows above the maximum at the horizon, if ranges grow
	// as they do now.
	Forecast float64
	// Load weighs, for each range, the target rows times the part by which its
	// writes exceed the limit (1 is twice the limit).
	Load float64
	// Placement weighs all the bucket's rows times the part by which the most
	// loaded node exceeds the mean of all nodes (1 is twice the mean).
	Placement float64
}

// DefaultWeights were chosen so that a necessary split moves about three
// quarters of what halving would; that a range with 1.7 times its load is cut,
// and that moving a tenth of the bucket's rows is worth it if it takes the
// heaviest node a tenth of the mean closer to the mean.
var DefaultWeights = Weights{RowsMoved: 1, Moves: 1000, Spread: 1, Forecast: 2, Load: 2, Placement: 1}

// Set changes the weight of a term by the name it has in a score: rows_moved,
// moves, spread, forecast, load or placement. A weight is neither negative nor
// infinite.
func (w *Weights) Set(term string, weight float64) error {
	if !(weight >= 0 && weight <= maxRate) {
		return fmt.Errorf("the weight of %s must be between 0 and %g, is %g", term, maxRate, weight)
	}
	switch term {
	case "rows_moved":
		w.RowsMoved = weight
	case "moves":
		w.Moves = weight
	case "spread":
		w.Spread = weight
	case "forecast":
		w.Forecast = weight
	case "load":
		w.Load = weight
	case "placement":
		w.Placement = weight
	default:
		return fmt.Errorf("the full objective has no term %q: it has rows_moved, moves, spread, forecast, load and placement", term)
	}
	return nil
}

// A Score is what an objective makes of a plan. Less is better everywhere.
type Score struct {
	Kind Kind
	// OverMax are the ranges over the maximum that could be divided, Undividable
	// those that could not.
	OverMax, Undividable int
	// UnderMin are the ranges under the minimum that nothing exempts.
	UnderMin int
	// RowsMoved, Moves and Partitions (after the plan) are plain counts.
	RowsMoved         int64
	Moves, Partitions int
	// Squares is the sum over ranges of (rows - target)^2.
	Squares plannermath.Uint128
	// Cost is the weighted sum of the Full objective, in rows; 0 with Rows.
	Cost float64
	// Terms are the products of which Cost is the sum, with their weights.
	Terms []Term
}

// A Term of the full objective: Cost, in rows, is Weight times Value.
type Term struct {
	Name                string
	Value, Weight, Cost float64
}

// Better says whether s is strictly better than t. Both must be of one kind.
func (s *Score) Better(t *Score) bool {
	switch {
	case s.OverMax != t.OverMax:
		return s.OverMax < t.OverMax
	case s.UnderMin != t.UnderMin:
		return s.UnderMin < t.UnderMin
	case s.Kind == Full:
		return s.Cost < t.Cost
	case s.RowsMoved != t.RowsMoved:
		return s.RowsMoved < t.RowsMoved
	case s.Partitions != t.Partitions:
		return s.Partitions < t.Partitions
	}
	return s.Squares.Cmp(t.Squares) < 0
}

// MarshalJSON writes the counts, and for Full the cost with its terms.
func (s Score) MarshalJSON() ([]byte, error) {
	type term struct {
		Value  float64 `json:"value"`
		Weight float64 `json:"weight"`
		Cost   float64 `json:"cost"`
	}
	var out = struct {
		Kind        Kind             `json:"kind"`
		OverMax     int              `json:"over_max"`
		Undividable int              `json:"undividable"`
		UnderMin    int              `json:"under_min"`
		RowsMoved   int64            `json:"rows_moved"`
		Moves       int              `json:"moves"`
		Partitions  int              `json:"partitions"`
		Squares     json.Number      `json:"squared_deviation"`
		Cost        *float64         `json:"cost,omitempty"`
		Terms       *map[string]term `json:"terms,omitempty"`
	}{s.Kind, s.OverMax, s.Undividable, s.UnderMin, s.RowsMoved, s.Moves, s.Partitions,
		json.Number(s.Squares.Big().String()), nil, nil}
	if s.Kind == Full {
		terms := make(map[string]term, len(s.Terms))
		for _, t := range s.Terms {
			terms[t.Name] = term{t.Value, t.Weight, t.Cost}
		}
		out.Cost, out.Terms = &s.Cost, &terms
	}
	return json.Marshal(out)
}

// A Tally adds up what an objective needs, one range at a time and in any part
// of the bucket, so that a planner that leaves most of a bucket alone counts
// that part once. The zero value is of no use: see NewTally.
type Tally struct {
	grid                         *Grid
	over, undividable, under     int
	moves, ranges                int
	moved                        int64
	squares                      plannermath.Uint128
	spread, forecast, load, lost float64
	nodes                        []float64
}

// NewTally returns an empty tally. It belongs to one goroutine.
func NewTally(g *Grid) *Tally {
	t := &Tally{grid: g, nodes: make([]float64, len(g.Layout.Nodes))}
	for i := range t.nodes {
		t.nodes[i] = g.Layout.Nodes[i].WritesPerS
	}
	return t
}

// CopyFrom makes t a copy of a tally of the same grid, without allocating.
func (t *Tally) CopyFrom(from *Tally) {
	nodes := t.nodes
	copy(nodes, from.nodes)
	*t = *from
	t.nodes = nodes
}

// Add counts one range, from position start to end. For a kept range the node is
// that of its partition, whatever the piece says.
func (t *Tally) Add(start, end int32, keep bool, node int16) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Add(plannermath.Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, node, 1)
}

// Remove takes one range back that was added. Sums of fractions may be off by
// their rounding afterwards.
func (t *Tally) Remove(start, end int32, keep bool, node int16) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Sub(plannermath.Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, node, -1)
}

// count adds so many times one range, except for its squares.
func (t *Tally) count(start, end int32, keep bool, node int16, times int) {
	g, lim := t.grid, &t.grid.Limits
	rows := g.RowsIn(start, end)
	writes := g.WritesIn(start, end)
	owner := g.Owner[start]
	f := float64(times)
	t.ranges += times
	if rows > lim.MaxRows {
		if g.Divisible(start, end) {
			t.over += times
		} else {
			t.undividable += times
		}
	}
	if rows < lim.MinRows && !(keep && g.Pinned(owner)) {
		t.under += times
	}
	if keep {
		node = g.home[owner]
	} else {
		t.moved += int64(times) * rows
		t.moves += times * (int(g.Owner[end-1]-owner) + 1)
	}
	away := float64(rows - lim.TargetRows)
	t.spread += f * (away / float64(max(lim.TargetRows, 1)) * away)
	t.forecast += f * max(0, float64(rows-lim.MaxRows)+g.GrowthIn(start, end)*lim.HorizonS)
	if lim.MaxWritesPerS > 0 && writes > lim.MaxWritesPerS {
		t.load += f * (writes/lim.MaxWritesPerS - 1) * float64(lim.TargetRows)
	}
	if node >= 0 {
		t.nodes[node] += f * writes
	} else {
		t.lost += f * writes
	}
}

// NodeLoads returns the writes per second that each node would carry, fresh ids
// without a node being spread over all. The slice is the caller's.
func (t *Tally) NodeLoads() []float64 {
	loads := make([]float64, len(t.nodes))
	for i := range loads {
		loads[i] = t.nodes[i] + t.lost/float64(len(t.nodes))
	}
	return loads
}

// Counts returns the two counts that come before everything else, and the cost
// of the full objective under the weights, in rows.
func (t *Tally) Counts(w Weights) (over, under int, cost float64) {
	return t.over, t.under, w.RowsMoved*float64(t.moved) + w.Moves*float64(t.moves) + w.Spread*t.spread +
		w.Forecast*t.forecast + w.Load*t.load + w.Placement*t.placement()
}

// placement is all rows times the part by which the heaviest node exceeds the
// mean.
func (t *Tally) placement() float64 {
	if len(t.nodes) == 0 {
		return 0
	}
	heaviest, sum := 0.0, t.lost
	for _, load := range t.nodes {
		heaviest = max(heaviest, load)
		sum += load
	}
	if sum <= 0 {
		return 0
	}
	n := float64(len(t.nodes))
	heaviest += t.lost / n
	return float64(t.grid.Rows[t.grid.N]) * max(0, heaviest/(sum/n)-1)
}

// Score returns what the objective makes of the ranges added so far.
func (t *Tally) Score(o Objective) Score {
	s := Score{
		Kind: o.Kind, OverMax: t.over, Undividable: t.undividable, UnderMin: t.under,
		RowsMoved: t.moved, Moves: t.moves, Partitions: t.ranges, Squares: t.squares,
	}
	if o.Kind != Full {
		return s
	}
	for _, term := range []Term{
		{Name: "rows_moved", Value: float64(t.moved), Weight: o.Weights.RowsMoved},
		{Name: "moves", Value: float64(t.moves), Weight: o.Weights.Moves},
		{Name: "spread", Value: t.spread, Weight: o.Weights.Spread},
		{Name: "forecast", Value: t.forecast, Weight: o.Weights.Forecast},
		{Name: "load", Value: t.load, Weight: o.Weights.Load},
		{Name: "placement", Value: t.placement(), Weight: o.Weights.Placement},
	} {
		term.Cost = term.Weight * term.Value
		s.Cost += term.Cost
		s.Terms = append(s.Terms, term)
	}
	return s
}

// Score returns what the objective makes of a draft.
func (g *Grid) Score(d Draft, o Objective) Score {
	t := NewTally(g)
	for i, p := range d {
		t.Add(p.Start, d.End(g, i), p.Keep, p.Node)
	}
	return t.Score(o)
}
