package plan

import (
	"encoding/json"
	"fmt"
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

// DefaultKind is the objective of whole plans where none is given, in commands, the admin API and the console: by it a
// plan moves only what has to move to keep the limits. Full also copies rows for fewer ranges, and for a forecast.
const DefaultKind = Rows

// An Objective says which of two plans is the better.
type Objective struct {
	Kind Kind
	// Weights are those of Full; Rows has none.
	Weights Weights
}

// Weights make the terms of the full objective comparable: each product of a
// weight and its term is in rows, "as bad as moving so many rows". Costs has
// those by which decisions are made, live and in whole plans.
type Weights struct {
	// RowsMoved weighs each row that changes partition.
	RowsMoved float64
	// Moves weighs each move: its swaps, its waits and its share of a batch.
	Moves float64
	// Ranges weighs each range beyond the fewest that can hold the rows: its rent.
	Ranges float64
	// Spread weighs the sum over ranges of (rows - target)^2 / target.
	Spread float64
	// Forecast weighs the rows above the maximum at the horizon, if ranges grow
	// as they do now.
	Forecast float64
	// Load weighs, for each range, the target rows times the part by which its
	// writes exceed the limit (1 is twice the limit).
	Load float64
}

// Costs is the full objective with the weights of what a layout of ranges of at most maxRows rows costs:
// the rows copied, a hundredth of the maximum for each move, half of the maximum
// for each range too many, and twice the rows by which ranges are, or will be,
// over the maximum. A range with 1.7 times its load is cut. Evenness is no cost:
// it says nothing about what a range will take in.
func Costs(maxRows int64) Objective {
	return Objective{Kind: Full, Weights: Weights{
		RowsMoved: 1, Moves: overhead * float64(maxRows), Ranges: rent * float64(maxRows), Forecast: 2, Load: 2,
	}}
}

const (
	// overhead is the cost of a move's swaps and waits, rent that of a range too
	// many, as shares of the maximum.
	overhead = 0.01
	rent     = 0.5
)

// Set changes the weight of a term by the name it has in a score: rows_moved,
// moves, ranges, spread, forecast or load. A weight is neither negative nor
// infinite.
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

// A Score is the value of a plan under an objective. Less is better everywhere.
type Score struct {
	Kind Kind `json:"kind"`
	// OverMax are the ranges over the maximum that could be divided, Undividable those
	// that could not.
	OverMax     int `json:"over_max"`
	Undividable int `json:"undividable"`
	// UnderMin are the ranges under the minimum that nothing exempts.
	UnderMin int `json:"under_min"`
	// RowsMoved, Moves and Partitions (after the plan) are plain counts.
	RowsMoved  int64 `json:"rows_moved"`
	Moves      int   `json:"moves"`
	Partitions int   `json:"partitions"`
	// Squares is the sum over ranges of (rows - target)^2.
	Squares Uint128 `json:"squared_deviation"`
	// Cost is the weighted sum of the Full objective, in rows; 0 with Rows.
	Cost float64 `json:"cost"`
	// Terms are the products of which Cost is the sum, with their weights.
	Terms Terms `json:"terms,omitzero"`
}

// A Term of the full objective: Cost, in rows, is Weight times Value.
type Term struct {
	Name   string  `json:"-"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
	Cost   float64 `json:"cost"`
}

// Terms is an object in JSON, by the names of the terms.
type Terms []Term

// MarshalJSON writes the terms by their names.
func (t Terms) MarshalJSON() ([]byte, error) {
	named := make(map[string]Term, len(t))
	for _, term := range t {
		named[term.Name] = term
	}
	return json.Marshal(named)
}

// MarshalJSON writes the cost only for the Full objective.
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

// A Tally adds up what an objective needs, one range at a time and in any part
// of the bucket, so that a planner that leaves most of a bucket alone counts
// that part once. The zero value is of no use: see NewTally.
type Tally struct {
	grid                     *Grid
	over, undividable, under int
	moves, ranges            int
	moved                    int64
	squares                  Uint128
	spread, forecast, load   float64
}

// NewTally returns an empty tally.
func NewTally(g *Grid) Tally { return Tally{grid: g} }

// Add counts one range, from position start to end.
func (t *Tally) Add(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Add(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, 1)
}

// Remove takes one range back that was added. Sums of fractions may be off by
// their rounding afterwards.
func (t *Tally) Remove(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Sub(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, -1)
}

// count adds so many times one range, except for its squares.
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

// Counts returns the two counts that come before everything else, and the cost
// of the full objective under the weights, in rows.
func (t *Tally) Counts(w Weights) (over, under int, cost float64) {
	return t.over, t.under, t.cost(w, t.tooMany())
}

// tooMany are the ranges beyond the fewest. What is over the maximum has fewer.
func (t *Tally) tooMany() float64 { return max(0, float64(t.ranges)-float64(t.grid.Fewest)) }

func (t *Tally) cost(w Weights, tooMany float64) float64 {
	return w.RowsMoved*float64(t.moved) + w.Moves*float64(t.moves) + w.Ranges*tooMany + w.Spread*t.spread +
		w.Forecast*t.forecast + w.Load*t.load
}

// Cost returns what one range adds to a plan under the full objective, and 1 if it is under the minimum. A plan costs
// the sum of its ranges, less the rent of the fewest.
func (g *Grid) Cost(start, end int32, keep bool, w Weights) (under int, cost float64) {
	t := Tally{grid: g}
	t.count(start, end, keep, 1)
	return t.under, t.cost(w, 1)
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

// Score returns what the objective makes of a draft.
func (g *Grid) Score(d Draft, o Objective) Score {
	t := NewTally(g)
	for i, p := range d {
		t.Add(p.Start, d.End(g, i), p.Keep)
	}
	return t.Score(o)
}
