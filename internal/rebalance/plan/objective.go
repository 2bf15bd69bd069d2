package plan

import (
	"encoding/json"
	"fmt"
)

// A Kind is one of two ways to compare plans: first of all by the rows that they move (Rows), or by a weighted sum of
// several costs (Full).
type Kind string

const (
	// Rows compares plans by these numbers, in this order: ranges over the maximum number of rows that can be divided,
	// ranges under the minimum, rows moved, partitions, squared deviation from the target. The exact planner finds the
	// best plan by this order.
	Rows Kind = "rows"
	// Full compares plans by these numbers, in this order: ranges over the maximum number of rows that can be divided,
	// ranges under the minimum, and the weighted sum of the costs that Weights names.
	Full Kind = "full"
)

// DefaultKind is the way to compare plans for a whole bucket if none is given, in commands, the admin API and the
// console. With Rows, a plan moves only the rows that must move to keep the limits. With Full, a plan also copies rows
// to have fewer ranges, or because of a forecast.
const DefaultKind = Rows

// An Objective says how to compare two plans: by the way Kind and, if Kind is Full, by the weights of the costs.
type Objective struct {
	Kind Kind
	// Weights are the weights of the costs. They are used only if Kind is Full.
	Weights Weights
}

// Weights say how much each kind of cost of a plan counts under the full objective, a weighted sum. Each weight times
// its cost is in rows: a product of 1,000 is as bad as moving 1,000 rows. Costs returns the weights that are used in
// practice, for live decisions and for whole plans.
type Weights struct {
	// RowsMoved is the weight of each row that changes its partition.
	RowsMoved float64
	// Moves is the weight of each move: what its changes of the partition map and its waits cost, whatever the number
	// of its rows.
	Moves float64
	// Ranges is the weight of each range beyond the fewest that can hold the rows. It stands for the lasting cost of a
	// range.
	Ranges float64
	// Spread is the weight of unequal sizes: of the sum over ranges of (rows - target)^2 / target.
	Spread float64
	// Forecast is the weight of the rows by which ranges will be over the maximum number of rows at the horizon
	// (Limits.HorizonS), if they grow as they do now.
	Forecast float64
	// Load is the weight of writes over the limit. The cost of a range is its excess of writes, as a share of the
	// limit, times the target rows: e.g. the target rows for a range with twice the allowed writes.
	Load float64
}

// Costs returns the full objective, which compares plans by a weighted sum, for ranges of at most maxRows rows. These
// are the costs:
//   - each row that is copied: 1,
//   - each row by which a range is, or will be, over the maximum: 2,
//   - each move: a hundredth of maxRows,
//   - each range beyond the fewest possible: half of maxRows, and
//   - writes over the limit: so much that a range with 1.7 times the allowed writes is cut.
//
// Unequal sizes cost nothing.
func Costs(maxRows int64) Objective {
	// Unequal sizes do not tell how many rows a range will take in.
	return Objective{Kind: Full, Weights: Weights{
		RowsMoved: 1, Moves: overhead * float64(maxRows), Ranges: rent * float64(maxRows), Forecast: 2, Load: 2,
	}}
}

const (
	// overhead is the cost of a move apart from its rows, and rent is the cost of a range beyond the fewest possible.
	// Both are shares of the maximum number of rows.
	overhead = 0.01
	rent     = 0.5
)

// Set changes one weight. The argument term is the name of the cost as in a score: rows_moved, moves, ranges, spread,
// forecast or load. Set fails if there is no weight of this name, or if the new weight is not from 0 to 1e12.
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

// A Score says how good a plan is, by the counts and costs that an Objective compares. In every field, less is better.
type Score struct {
	Kind Kind `json:"kind"`
	// OverMax is the number of ranges over the maximum number of rows that could be divided. Undividable is the number
	// of ranges over the maximum that could not.
	OverMax     int `json:"over_max"`
	Undividable int `json:"undividable"`
	// UnderMin is the number of ranges under the minimum number of rows, without those that are exempt from the
	// minimum.
	UnderMin int `json:"under_min"`
	// RowsMoved is the number of rows that the plan moves, Moves is the number of its moves, and Partitions is the
	// number of partitions after the plan.
	RowsMoved  int64 `json:"rows_moved"`
	Moves      int   `json:"moves"`
	Partitions int   `json:"partitions"`
	// Squares is the sum over all ranges of (rows - target)^2, which measures how uneven the ranges are.
	Squares Uint128 `json:"squared_deviation"`
	// Cost is the weighted sum of costs under the Full objective, in rows; 0 under the Rows objective.
	Cost float64 `json:"cost"`
	// Terms are the costs of which Cost is the sum, with their weights.
	Terms Terms `json:"terms,omitzero"`
}

// A Term is one kind of cost of a plan, such as rows_moved, under the full objective, the weighted sum. The field Cost,
// in rows, is Weight times Value.
type Term struct {
	Name   string  `json:"-"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
	Cost   float64 `json:"cost"`
}

// Terms are the kinds of cost of which the cost of a plan is the sum. In JSON they are an object, with the names of the
// terms as field names.
type Terms []Term

// MarshalJSON returns the terms as a JSON object, with the names of the terms as field names.
func (t Terms) MarshalJSON() ([]byte, error) {
	named := make(map[string]Term, len(t))
	for _, term := range t {
		named[term.Name] = term
	}
	return json.Marshal(named)
}

// MarshalJSON returns the score as a JSON object. It has the field cost only if the plan was scored under the Full
// objective.
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

// Better reports whether the plan with the score s is strictly better than the plan with the score t. Both scores must
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

// A Tally adds up the score of a plan, range by range, in any order. A planner that changes only a part of a bucket
// adds the unchanged ranges once, and copies the Tally for each variant of the rest. A Tally must be made by NewTally.
type Tally struct {
	grid                     *Grid
	over, undividable, under int
	moves, ranges            int
	moved                    int64
	squares                  Uint128
	spread, forecast, load   float64
}

// NewTally returns a Tally without ranges, to which the ranges of a plan are added for its score. The argument g is the
// grid of the layout, to which the positions of ranges refer.
func NewTally(g *Grid) Tally { return Tally{grid: g} }

// Add adds one range of a plan to the score: the range from position start to position end. A position is the index, in
// the grid, of a key at which ranges may begin. keep is true if the range keeps the id of an old partition, so that its
// rows do not move.
func (t *Tally) Add(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Add(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, 1)
}

// Remove takes one range of a plan out of the score again, so that variants of a plan can be tried. The arguments are
// those with which the range was added. Rounding errors may remain in sums of fractions.
func (t *Tally) Remove(start, end int32, keep bool) {
	g, lim := t.grid, &t.grid.Limits
	t.squares = t.squares.Sub(Square(g.RowsIn(start, end) - lim.TargetRows))
	t.count(start, end, keep, -1)
}

// count adds one range of a plan to the score if times is 1, and takes the range out again if times is -1. The range
// reaches from position start to position end of the grid. keep is true if the range keeps the id of an old partition.
// count leaves out the squared distance from the target, which its callers handle.
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

// Counts returns the three numbers by which plans are compared under the full objective, the most important one first:
//   - over is the number of ranges over the maximum number of rows that a cut could divide,
//   - under is the number of ranges under the minimum, and
//   - cost is the weighted sum of the costs, in rows.
//
// A plan with a smaller number is better.
func (t *Tally) Counts(w Weights) (over, under int, cost float64) {
	return t.over, t.under, t.cost(w, t.tooMany())
}

// tooMany returns by how many ranges the plan exceeds the fewest possible within the maximum number of rows, for the
// cost of ranges. It returns 0 if the plan has fewer, as it may with ranges over the maximum.
func (t *Tally) tooMany() float64 { return max(0, float64(t.ranges)-float64(t.grid.Fewest)) }

func (t *Tally) cost(w Weights, tooMany float64) float64 {
	return w.RowsMoved*float64(t.moved) + w.Moves*float64(t.moves) + w.Ranges*tooMany + w.Spread*t.spread +
		w.Forecast*t.forecast + w.Load*t.load
}

// Cost returns what one range adds to the score of a plan under the full objective. The range reaches from position
// start to position end, which are indexes of keys in the grid. keep is true if the range keeps the id of an old
// partition. The result cost is in rows, and under is 1 if the range is under the minimum number of rows, else 0.
func (g *Grid) Cost(start, end int32, keep bool, w Weights) (under int, cost float64) {
	// The cost counts each range as one too many. So the cost of a plan is the sum over its ranges, less the weight of
	// a range for each of the fewest possible ranges.
	t := Tally{grid: g}
	t.count(start, end, keep, 1)
	return t.under, t.cost(w, 1)
}

// Score returns the score, under the objective o, of the ranges that were added so far, taken as a whole plan.
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

// Score returns the score, under the objective o, of the draft d, which is a plan in the making.
func (g *Grid) Score(d Draft, o Objective) Score {
	t := NewTally(g)
	for i, p := range d {
		t.Add(p.Start, d.End(g, i), p.Keep)
	}
	return t.Score(o)
}
