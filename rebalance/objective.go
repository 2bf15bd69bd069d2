package rebalance

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
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
		"rows_moved": &w.RowsMoved, "moves": &w.Moves, "ranges": &w.Ranges, "spread": &w.Spread,
		"forecast": &w.Forecast, "load": &w.Load,
	}[term]
	if of == nil {
		return fmt.Errorf("the full objective has no term %q: "+
			"it has rows_moved, moves, ranges, spread, forecast and load", term)
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
	// Nil stands for 0. The sum does not fit into 64 bits, and a float64 would not distinguish nearly equal ones.
	Squares *big.Int `json:"squared_deviation"`
	// Cost is the weighted sum of costs under the Full objective, in rows; 0 under the Rows objective.
	Cost float64 `json:"cost"`
	// Terms are the costs of which Cost is the sum, with their weights.
	Terms []Term `json:"terms,omitzero"`
}

// A Term is one kind of cost of a plan, such as rows_moved, under the full objective, the weighted sum. The field Cost,
// in rows, is Weight times Value.
type Term struct {
	Name   string  `json:"-"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
	Cost   float64 `json:"cost"`
}

// MarshalJSON returns the score as a JSON object. The terms are an object, with the names of the terms as field names.
// The score has the field cost only if the plan was scored under the Full objective.
func (s Score) MarshalJSON() ([]byte, error) {
	type plain Score
	out := struct {
		plain
		Terms map[string]Term `json:"terms,omitzero"`
		Cost  *float64        `json:"cost,omitempty"`
	}{plain: plain(s)}
	if s.Terms != nil {
		out.Terms = make(map[string]Term, len(s.Terms))
	}
	for _, term := range s.Terms {
		out.Terms[term.Name] = term
	}
	if s.Kind == Full {
		out.Cost = &s.Cost
	}
	if s.Squares == nil {
		out.Squares = new(big.Int)
	}
	return json.Marshal(out)
}

// UnmarshalJSON sets the score from the JSON object that MarshalJSON returns. The terms are in the order of their
// names.
func (s *Score) UnmarshalJSON(data []byte) error {
	type plain Score
	in := struct {
		*plain
		Terms map[string]Term `json:"terms"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	s.Terms = nil
	for _, name := range slices.Sorted(maps.Keys(in.Terms)) {
		term := in.Terms[name]
		term.Name = name
		s.Terms = append(s.Terms, term)
	}
	return nil
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
	if s.Squares == nil || t.Squares == nil {
		return s.Squares == nil && t.Squares != nil && t.Squares.Sign() > 0
	}
	return s.Squares.Cmp(t.Squares) < 0
}
