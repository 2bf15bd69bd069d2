package exact

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
)

// A state is an entry in the table of the dynamic program: the best plan for all keys below one key at which a range
// may begin. It holds only the plan's last range, and the numbers on which the choice of later ranges depends.
type state struct {
	under, ranges int32
	kept          int64 // rows that stay in their partition
	squares       grid.Uint128

	before int32 // where the plan's last range starts
	some   bool  // the plan below that range is the state in programme.some, not the one in programme.none
	keep   bool  // the last range keeps the id of its partition
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

// programme is one run of the dynamic program that finds the best plan for a bucket. It goes through the keys at which
// ranges may begin, and finds the best plan for all keys below each of them. For the key with the index d there are two
// plans, since at most one range may keep the id of each partition:
//   - none[d]: no range of the plan keeps the id of the partition that contains the key
//   - some[d]: a range of the plan keeps this id
//
// If a partition starts at d, there is only none[d].
type programme struct {
	g          *grid.Grid
	none, some []state
	// useSome[c] is true if some[c] is better than none[c] for plans in which no later range keeps the id of the
	// partition that contains c.
	useSome []bool

	// These slices say where a range may start that ends at d:
	//   - At underLow[d] or later: the range is under the minimum number of rows.
	//   - At fitLow[d] or later: the range is not over the maximum.
	//   - From loneLow[d] up to alone[d]: the range is over the maximum, but no cut can divide its rows. They lie in
	//     the atom alone[d], an interval of keys that no plan can cut. If there is no such atom, alone[d] is -1.
	underLow, fitLow, loneLow, alone []int32

	// These windows hold the possible starts of the last range of a plan that ends at d. There are four cases:
	//   - far: the range gets a new id, and starts in an earlier partition than the one of d,
	//   - newNone: it gets a new id, starts in the partition of d, and no range has kept that partition's id,
	//   - newSome: as newNone, but an earlier range has kept the id, and
	//   - kept: the range keeps the id of the partition of d.
	far, newNone, newSome, kept [kinds]window
	farBase, base               int32 // the first candidates of far, and of the other windows
	scratch                     []line
}

// under, fit and lone say how many rows the last range of a plan has, compared with the limits. For each of the three
// cases the dynamic program keeps a window, which is a set of possible starts of the last range.
const (
	under = iota // below the minimum
	fit          // within the limits
	lone         // over the maximum, and not divisible
	kinds
)

func newProgramme(g *grid.Grid) *programme {
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

// limits fills the slices underLow, fitLow, loneLow and alone. They say for each position d of the grid how far below d
// a range may start that ends at d: a range under the minimum number of rows, one within the limits, or one over the
// maximum that no cut can divide.
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

func (dp *programme) total(s *state, c, d int32) grid.Uint128 {
	return s.squares.Add(grid.Square(dp.g.RowsIn(c, d) - dp.g.Limits.TargetRows))
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

// relax looks for a better plan for the keys below position d (the index of a key at which ranges may begin), and
// stores it in best. The other parameters are:
//   - group: the windows that propose starts of the plan's last range
//   - high: the highest position at which this range may start
//   - last: the highest d of later calls with this group
//   - exempt: true if the range may have fewer rows than the minimum
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

// draft returns the best plan as a list of ranges, after the dynamic program has run to the end.
func (dp *programme) draft() grid.Draft {
	// Each state has its last range only, so the ranges are collected from the last to the first.
	s := &dp.none[dp.g.N]
	d := make(grid.Draft, s.ranges)
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = grid.Piece{Start: s.before, Keep: s.keep}
		if s.some {
			s = &dp.some[s.before]
		} else {
			s = &dp.none[s.before]
		}
	}
	return d
}
