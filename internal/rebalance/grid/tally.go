package grid

import "github.com/evenkeel/evenkeel/rebalance"

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
// the grid, of a key at which ranges may begin. The parameter keep is true if the range keeps the id of an old
// partition, so that its rows do not move.
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
// reaches from position start to position end of the grid. The parameter keep is true if the range keeps the id of an
// old partition. count leaves out the squared distance from the target, which its callers handle.
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
func (t *Tally) Counts(w rebalance.Weights) (over, under int, cost float64) {
	return t.over, t.under, t.cost(w, t.tooMany())
}

// tooMany returns how many more ranges the plan has than necessary. The necessary number is the fewest ranges within
// the maximum number of rows. The result is 0 if the plan has fewer, as it may with ranges over the maximum.
func (t *Tally) tooMany() float64 { return max(0, float64(t.ranges)-float64(t.grid.Fewest)) }

func (t *Tally) cost(w rebalance.Weights, tooMany float64) float64 {
	return w.RowsMoved*float64(t.moved) + w.Moves*float64(t.moves) + w.Ranges*tooMany + w.Spread*t.spread +
		w.Forecast*t.forecast + w.Load*t.load
}

// Cost returns what one range adds to the score of a plan under the full objective. The range reaches from position
// start to position end, which are indexes of keys in the grid. The parameter keep is true if the range keeps the id of
// an old partition. The result cost is in rows, and under is 1 if the range is under the minimum number of rows, else
// 0.
func (g *Grid) Cost(start, end int32, keep bool, w rebalance.Weights) (under int, cost float64) {
	// The cost counts each range as one too many. So the cost of a plan is the sum over its ranges, less the weight of
	// a range for each of the fewest possible ranges.
	t := Tally{grid: g}
	t.count(start, end, keep, 1)
	return t.under, t.cost(w, 1)
}

// Score returns the score, under the objective o, of the ranges that were added so far, taken as a whole plan.
func (t *Tally) Score(o rebalance.Objective) rebalance.Score {
	s := rebalance.Score{
		Kind: o.Kind, OverMax: t.over, Undividable: t.undividable, UnderMin: t.under,
		RowsMoved: t.moved, Moves: t.moves, Partitions: t.ranges, Squares: t.squares.Big(),
	}
	if o.Kind != rebalance.Full {
		return s
	}
	s.Terms = []rebalance.Term{
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
func (g *Grid) Score(d Draft, o rebalance.Objective) rebalance.Score {
	t := NewTally(g)
	for i, p := range d {
		t.Add(p.Start, d.End(g, i), p.Keep)
	}
	return t.Score(o)
}
