package plan

import (
	"encoding/json"
	"fmt"
)

// A Kind is one of two ways to compare plans: by the rows that they move (Rows), or by a weighted sum of several costs
// (Full).
type Kind string

const (
	// Rows compares plans by these counts, in this order: ranges over the maximum that can be divided, ranges under the
	// minimum, rows moved, partitions, squared deviation from the target. The exact planner finds its optimum.
	Rows Kind = "rows"
	// Full compares plans by these counts, in this order: ranges over the maximum that can be divided, ranges under the
	// minimum, and the weighted sum of the terms that Weights names.
	Full Kind = "full"
)

// DefaultKind is the way to compare plans for a whole bucket if none is given, in commands, the admin API and the
// console. With Rows, a plan moves only the rows that must move to keep the limits. With Full, a plan also copies rows
// to have fewer ranges, or because of a forecast.
const DefaultKind = Rows

// An Objective says how to compare two plans: which of them is the better.
type Objective struct {
	Kind Kind
	// Weights are the weights of the Full objective; Rows has none.
	Weights Weights
}

// Weights say how much each kind of cost of a plan counts under the full objective, the weighted sum. Each weight times
// its cost is in rows: a product of 1,000 is as bad as moving 1,000 rows. Costs returns the weights that are used in
// practice, for live decisions and for whole plans.
type Weights struct {
	// RowsMoved is the weight of each row that changes its partition.
	RowsMoved float64
	// Moves is the weight of each move: the cost of its swaps, its waits and its share of a batch.
	Moves float64
	// Ranges is the weight of each range beyond the fewest that can hold the rows: the lasting cost of a range.
	Ranges float64
	// Spread is the weight of the sum over ranges of (rows - target)^2 / target.
	Spread float64
	// Forecast is the weight of the rows above the maximum at the horizon, if ranges grow as they do now.
	Forecast float64
	// Load is the weight of writes over the limit. The term is, for each range, the target rows times the excess of its
	// writes as a share of the limit (1 is twice the limit).
	Load float64
}

// Costs returns the full objective, which compares plans by a weighted sum, for ranges of at most maxRows rows. A row
// copied costs 1, a move a hundredth of the maximum, and each range beyond the fewest possible half of the maximum.
// Rows by which ranges are, or will be, over the maximum cost 2 each. The weight of load is such that a range with 1.7
// times the allowed writes is cut. Unequal sizes cost nothing: they do not tell how many rows a range will take in.
func Costs(maxRows int64) Objective {
	return Objective{Kind: Full, Weights: Weights{
		RowsMoved: 1, Moves: overhead * float64(maxRows), Ranges: rent * float64(maxRows), Forecast: 2, Load: 2,
	}}
}

const (
	// overhead is the cost of a move's swaps and waits, and rent the cost of a range beyond the fewest. Both are shares
	// of the maximum.
	overhead = 0.01
	rent     = 0.5
)

// Set changes one weight. term is its name as in a score: rows_moved, moves, ranges, spread, forecast or load. Set
// fails if there is no weight of this name, or if the new weight is not from 0 to 1e12.
func (w *Weights) Set(term string, weight float64) error {
	if !(weight >= 0 && weight <= maxRate) {
		return fmt.Errorf("the weight of %s must be between 0 and %g, is %g", term, maxRate, weight)
	}
	of := map[string]*float64{
		"rows_moved": &w.RowsMoved, "moves": &w.Moves, "ranges": &w.Ranges, "spread": &w.Spread, "forecast": &w.Forecast,
		"load": &w.Load,
	}[term]
	if of == nil {
		return fmt.Errorf("the full objective has no term %q: it has rows_moved, moves, ranges, spread, forecast and load",
			term)
	}
	*of = weight
	return nil
}

// A Score says how good a plan is under an objective, the way to compare plans. In every field, less is better.
type Score struct {
	Kind Kind `json:"kind"`
	// OverMax is the number of ranges over the maximum that could be divided, Undividable of those that could not.
	OverMax     int `json:"over_max"`
	Undividable int `json:"undividable"`
	// UnderMin is the number of ranges under the minimum that no rule exempts.
	UnderMin int `json:"under_min"`
	// RowsMoved and Moves are the numbers of rows moved and of moves. Partitions is the number of partitions after the
	// plan.
	RowsMoved  int64 `json:"rows_moved"`
	Moves      int   `json:"moves"`
	Partitions int   `json:"partitions"`
	// Squares is the sum over ranges of (rows - target)^2.
	Squares Uint128 `json:"squared_deviation"`
	// Cost is the weighted sum of the Full objective, in rows; 0 for Rows.
	Cost float64 `json:"cost"`
	// Terms are the terms of which Cost is the sum, with their weights.
	Terms Terms `json:"terms,omitzero"`
}

// A Term is one part of the cost of a plan under the full objective, the weighted sum. Its cost, in rows, is Weight
// times Value.
type Term struct {
	Name   string  `json:"-"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
	Cost   float64 `json:"cost"`
}

// Terms are the parts of which the cost of a plan is the sum. In JSON they are an object, with the names of the terms
// as field names.
type Terms []Term

// MarshalJSON writes the terms as a JSON object, with the names of the terms as field names.
func (t Terms) MarshalJSON() ([]byte, error) {
	named := make(map[string]Term, len(t))
	for _, term := range t {
		named[term.Name] = term
	}
	return json.Marshal(named)
}

// MarshalJSON writes the score as a JSON object. Only under the Full objective, the weighted sum, does the object have
// a cost.
func (s Score) MarshalJSON() ([]byte, error) {
	type plain Score
	out := struct {
		plain
		Cost *float64 `json:"cost,omitempty"`
	}{plain: plain(s)}
	if s.Kind == Full {
		out.Cost = &s.Cost
	}
	return json.Marshal(out)
}

// Better reports whether the plan with the score s is strictly better than the one with the score t. Both scores must
// be of the same Kind.
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

// A Tally adds up the score of a plan, range by range, in any order. A planner that leaves most of a bucket as it is
// adds that part once, and copies the tally for each variant of the rest. The zero value is useless: see NewTally.
type Tally struct {
	grid                     *Grid
	over, undividable, under int
	moves, ranges            int
	moved                    int64
	squares                  Uint128
	spread, forecast, load   float64
}

// NewTally returns a tally without ranges, which adds up the score of a plan. g is the grid of the layout.
func NewTally(g *Grid) Tally { return Tally{grid: g} }

// Add adds one range of a plan to the score: the range from position start to position end of the grid. keep means that
// the range keeps the id of an old partition, so that its rows do not move.
func (t *Tally) Add(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Add(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, 1)
}

// Remove takes one range of a plan out of the score again. The arguments are those with which the range was added.
// Rounding errors may remain in sums of fractions.
func (t *Tally) Remove(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Sub(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, -1)
}

// count adds one range of a plan to the score (times is 1), or takes it out again (times is -1). The range reaches from
// position start to position end of the grid. keep means that it keeps the id of an old partition. The squared distance
// from the target is not counted here.
func (t *Tally) count(start, end int32, keep bool, times int) {
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
	if !keep {
		t.moved += int64(times) * rows
		t.moves += times * (int(g.Owner[end-1]-owner) + 1)
	}
	away := float64(rows - lim.TargetRows)
	t.spread += f * (away / float64(max(lim.TargetRows, 1)) * away)
	t.forecast += f * max(0, float64(rows-lim.MaxRows)+g.GrowthIn(start, end)*lim.HorizonS)
	if lim.MaxWritesPerS > 0 && writes > lim.MaxWritesPerS {
		t.load += f * (writes/lim.MaxWritesPerS - 1) * float64(lim.TargetRows)
	}
}

// Counts returns the three numbers by which plans are compared under the full objective. A smaller over wins, then a
// smaller under, then a smaller cost. over is the number of ranges over the maximum that a cut could divide. under is
// the number of ranges under the minimum. cost is the weighted sum of the costs, in rows.
func (t *Tally) Counts(w Weights) (over, under int, cost float64) {
	return t.over, t.under, t.cost(w, t.tooMany())
}

// tooMany returns by how many ranges the plan has more than the fewest possible within the maximum. It returns 0 if the
// plan has fewer, as it may with ranges over the maximum.
func (t *Tally) tooMany() float64 { return max(0, float64(t.ranges)-float64(t.grid.Fewest)) }

func (t *Tally) cost(w Weights, tooMany float64) float64 {
	return w.RowsMoved*float64(t.moved) + w.Moves*float64(t.moves) + w.Ranges*tooMany + w.Spread*t.spread +
		w.Forecast*t.forecast + w.Load*t.load
}

// Cost returns what one range adds to a plan: cost, in rows, under the full objective, and under, which is 1 if the
// range is under the minimum, else 0. The range reaches from position start to position end of the grid; with keep it
// keeps the id of an old partition. The cost counts each range as one too many. So the cost of a plan is the sum over
// its ranges, less the weight of a range for each of the fewest possible ranges.
func (g *Grid) Cost(start, end int32, keep bool, w Weights) (under int, cost float64) {
	t := Tally{grid: g}
	t.count(start, end, keep, 1)
	return t.under, t.cost(w, 1)
}

// Score returns the score that the ranges added so far have together, under the objective o.
func (t *Tally) Score(o Objective) Score {
	s := Score{
		Kind: o.Kind, OverMax: t.over, Undividable: t.undividable, UnderMin: t.under,
		RowsMoved: t.moved, Moves: t.moves, Partitions: t.ranges, Squares: t.squares,
	}
	if o.Kind != Full {
		return s
	}
	s.Terms = Terms{
		{Name: "rows_moved", Value: float64(t.moved), Weight: o.Weights.RowsMoved},
		{Name: "moves", Value: float64(t.moves), Weight: o.Weights.Moves},
		{Name: "ranges", Value: t.tooMany(), Weight: o.Weights.Ranges},
		{Name: "spread", Value: t.spread, Weight: o.Weights.Spread},
		{Name: "forecast", Value: t.forecast, Weight: o.Weights.Forecast},
		{Name: "load", Value: t.load, Weight: o.Weights.Load},
	}
	for i := range s.Terms {
		term := &s.Terms[i]
		term.Cost = term.Weight * term.Value
		s.Cost += term.Cost
	}
	return s
}

// Score returns the score of the draft d, a plan in the making, under the objective o.
func (g *Grid) Score(d Draft, o Objective) Score {
	t := NewTally(g)
	for i, p := range d {
		t.Add(p.Start, d.End(g, i), p.Keep)
	}
	return t.Score(o)
}
