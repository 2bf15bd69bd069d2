package exact

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
)

// A state is the best plan for all keys below a position, as far as later
// choices care.
type state struct {
	under, ranges int32
	kept          int64 // rows that stay in their partition
	squares       plan.Uint128

	before int32 // where the last range starts
	some   bool  // the plan below that is the one of programme.some
	keep   bool  // the last range keeps its old id
}

func (s *state) better(t *state) bool {
	switch {
	case s.under != t.under:
		return s.under < t.under
	case s.kept != t.kept:
		return s.kept > t.kept
	case s.ranges != t.ranges:
		return s.ranges < t.ranges
	}
	return s.squares.Cmp(t.squares) < 0
}

// programme is one run over a grid.
//
// none[d] is the best plan of what lies below d in which the partition that d
// divides has not kept its id; some[d] is the best in which it has. At starts of
// partitions only none has a meaning.
type programme struct {
	g          *plan.Grid
	none, some []state
	// useSome[c] says which of the two is better, once no later range can keep the
	// id of the partition that c divides.
	useSome []bool

	// The rows of a range that ends at d are under the minimum if it starts at
	// underLow[d] or later, and not over the maximum if at fitLow[d] or later.
	// If the last atom below d that has rows has more than the maximum, alone[d]
	// is that atom, and a range may start from loneLow[d] up to it; else alone[d]
	// is -1.
	underLow, fitLow, loneLow, alone []int32

	// The last range may be new and start in an earlier partition; be new and
	// start in the partition that d divides, of which nothing or some was kept;
	// or keep the id of that partition.
	far, newNone, newSome, kept [kinds]window
	farBase, base               int32 // the first candidates of far, and of the others
	scratch                     []line
}

// The kinds of windows, by what the rows of the last range are.
const (
	under = iota // below the minimum
	fit          // within the limits
	lone         // over the maximum, and not divisible
	kinds
)

func newProgramme(g *plan.Grid) *programme {
	n := g.N + 1
	dp := &programme{
		g: g, none: make([]state, n), some: make([]state, n), useSome: make([]bool, n),
		underLow: make([]int32, n), fitLow: make([]int32, n), loneLow: make([]int32, n), alone: make([]int32, n),
	}
	dp.limits()
	lows := [kinds][]int32{dp.underLow, dp.fitLow, dp.loneLow}
	for k := range kinds {
		low := lows[k]
		near := func(d int32) int32 { return max(low[d], dp.base) }
		dp.far[k].low = func(d int32) int32 { return max(low[d], dp.farBase) }
		dp.far[k].value = func(c int32) *state {
			if dp.useSome[c] {
				return &dp.some[c]
			}
			return &dp.none[c]
		}
		dp.newNone[k].low, dp.newSome[k].low, dp.kept[k].low = near, func(d int32) int32 { return max(low[d], dp.base+1) }, near
		dp.newNone[k].value = func(c int32) *state { return &dp.none[c] }
		dp.newSome[k].value = func(c int32) *state { return &dp.some[c] }
		dp.kept[k].value, dp.kept[k].keep = dp.newNone[k].value, true
		for _, w := range []*window{&dp.far[k], &dp.newNone[k], &dp.newSome[k], &dp.kept[k]} {
			w.dp, w.left = dp, make([]int32, n)
		}
	}
	return dp
}

// limits finds where the windows begin, for each target.
func (dp *programme) limits() {
	rows, lim := dp.g.Rows, dp.g.Limits
	var u, f, l int32
	filled := int32(-1)
	for d := range int32(len(rows)) {
		for u < d && rows[d]-rows[u] >= lim.MinRows {
			u++
		}
		for rows[d]-rows[f] > lim.MaxRows {
			f++
		}
		dp.underLow[d], dp.fitLow[d] = u, f
		if d > 0 && rows[d] > rows[d-1] {
			filled = d - 1
		}
		dp.alone[d], dp.loneLow[d] = -1, f
		if filled >= 0 && rows[filled+1]-rows[filled] > lim.MaxRows {
			for rows[l] < rows[filled] {
				l++
			}
			dp.alone[d], dp.loneLow[d] = filled, l
		}
	}
}

func (dp *programme) axis(d int32) int64 { return dp.g.Rows[d] - dp.g.Limits.TargetRows }

func (dp *programme) total(s *state, c, d int32) plan.Uint128 {
	return s.squares.Add(plan.Square(dp.g.RowsIn(c, d) - dp.g.Limits.TargetRows))
}

func (dp *programme) run(ctx context.Context) error {
	g := dp.g
	lastFar := int32(0) // how far the windows of far reach: up to the next pin
	for p := range int32(len(g.First) - 1) {
		if p%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		start, end := g.First[p], g.First[p+1]
		dp.base = start
		for k := range kinds {
			dp.newNone[k].reset(start)
			dp.newSome[k].reset(start + 1)
			dp.kept[k].reset(start)
		}
		if p == 0 || g.Pinned(p) {
			dp.farBase = start
			q := p + 1
			for int(q) < len(g.First)-1 && !g.Pinned(q) {
				q++
			}
			lastFar = g.First[q]
			for k := range kinds {
				dp.far[k].reset(start)
			}
		}
		exempt := g.Pinned(p)
		for d := start + 1; d <= end; d++ {
			if d&0xffff == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			none, some := &dp.none[d], &dp.some[d]
			none.ranges, some.ranges = -1, -1
			if d == end {
				some = none // beyond the partition nobody asks what it kept
			}
			dp.relax(none, dp.far[:], d, start-1, lastFar, false)
			dp.relax(none, dp.newNone[:], d, d-1, end, false)
			dp.relax(some, dp.newSome[:], d, d-1, end, false)
			dp.relax(some, dp.kept[:], d, d-1, end, exempt)
		}
		for c := start + 1; c < end; c++ {
			dp.useSome[c] = dp.some[c].better(&dp.none[c])
		}
	}
	return nil
}

// relax improves a state of target d by the candidates of one group up to high.
func (dp *programme) relax(best *state, group []window, d, high, last int32, exempt bool) {
	try := func(k int, high int32) {
		w := &group[k]
		c := w.best(d, high, last)
		if c < 0 {
			return
		}
		from := w.value(c)
		s := state{
			under: from.under, ranges: from.ranges + 1, kept: from.kept, squares: dp.total(from, c, d),
			before: c, some: from == &dp.some[c], keep: w.keep,
		}
		if k == under {
			s.under++
		}
		if w.keep {
			s.kept += dp.g.RowsIn(c, d)
		}
		if best.ranges < 0 || s.better(best) {
			*best = s
		}
	}
	if exempt {
		try(fit, high)
	} else {
		try(under, high)
		try(fit, min(high, dp.underLow[d]-1))
	}
	if dp.alone[d] >= 0 {
		try(lone, min(high, dp.alone[d]))
	}
}

// draft walks back from the end.
func (dp *programme) draft() plan.Draft {
	s := &dp.none[dp.g.N]
	d := make(plan.Draft, s.ranges)
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = plan.Piece{Start: s.before, Keep: s.keep}
		if s.some {
			s = &dp.some[s.before]
		} else {
			s = &dp.none[s.before]
		}
	}
	return d
}
