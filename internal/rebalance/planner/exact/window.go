package exact

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
)

// A window says where the last range of a plan should start, if the plan ends at a given position d. A position is the
// index of a key at which ranges may begin. The possible starts are a run of positions. As d grows, both ends of the
// run only move forward, so that all answers together take linear time. See the method best.
type window struct {
	dp *programme
	// value returns the best plan of the keys below c, which is a possible start of the last range.
	value func(c int32) *state
	// keep is true if the last range keeps the id of its partition. Then its rows are kept, too. So rank compares
	// candidates by the rows kept before the candidate, less the rows below the candidate.
	keep bool
	// low returns the lowest possible start of a range that ends at d.
	low func(d int32) int32

	checkpoint int32 // the last candidate of the left part; -1 if there is none
	leftUntil  int32 // left holds the answers for targets up to this one
	left       []int32
	right      envelope
	added      int32 // candidates below this one are in the right envelope or left of it
}

// reset empties the window, which holds possible starts of the last range of a plan. The first start that is added
// afterwards is the position base, and the next ones follow in order.
func (w *window) reset(base int32) {
	w.checkpoint, w.leftUntil, w.added = base-1, -1, base
	w.right.reset(w, 1)
}

// best returns the position at which the last range of a plan should start if it ends at position d. A position is the
// index of a key at which ranges may begin. The result is between low(d) and high, or -1 if there is no such position.
// From call to call, d and high may only grow. The parameter last is the highest d that may be asked for before the
// next reset.
func (w *window) best(d, high, last int32) int32 {
	// The cost of a range from c to d has two parts. The first three criteria (see rank) depend on c alone. The last
	// criterion, (rows(c,d)-target)^2, satisfies the quadrangle inequality: of two candidates of equal rank, once the
	// later one is better, it stays better. So the candidates that can still win form the lower envelope of lines (the
	// convex hull trick), and each query is a step along the envelope.
	//
	// An envelope cannot lose candidates at its left end: a candidate that was dropped in favour of a lost one might
	// now win. So a window has two envelopes, which meet at a checkpoint. The right one only gains candidates, those
	// beyond the checkpoint. The left one is computed backwards (back), from high values of d to low ones, so that it
	// only gains candidates, too.
	//
	// With the quadrangle inequality the idea is that of D. Eppstein, Z. Galil and R. Giancarlo, "Speeding up dynamic
	// programming" (1988). The two envelopes work like a queue made of two stacks.
	low := w.low(d)
	if low > high {
		return -1
	}
	if low > w.checkpoint {
		w.checkpoint = high
		w.added = high + 1
		w.right.reset(w, 1)
		w.back(d, last)
	}
	for ; w.added <= high; w.added++ {
		w.right.push(w.added)
	}
	found := int32(-1)
	if d <= w.leftUntil {
		found = w.left[d]
	}
	if c := w.right.query(w.dp.axis(d)); c >= 0 && (found < 0 || w.less(c, found, d)) {
		found = c
	}
	return found
}

// back fills the slice left: for each end of a range, beginning at position d, it computes the best start among the
// positions up to w.checkpoint. It stops at the last end that has such a start, or at `last`.
func (w *window) back(d, last int32) {
	// The ends are handled from high to low, so that candidates are only added to the envelope.
	end := d
	for end < last && w.low(end+1) <= w.checkpoint {
		end++
	}
	w.leftUntil = end
	var e envelope
	e.lines = w.dp.scratch[:0]
	e.reset(w, -1)
	c := w.checkpoint
	for t := end; t >= d; t-- {
		for ; c >= w.low(t); c-- {
			e.push(c)
		}
		w.left[t] = e.query(w.dp.axis(t))
	}
	w.dp.scratch = e.lines
}

// rank compares two positions a and b as starts of the last range of a plan. The criteria are the ranges under the
// minimum number of rows, the rows kept, and the number of ranges; they do not depend on where the range ends. The
// result is -1 if a is better, 1 if b is better, and 0 if they are equal.
func (w *window) rank(a, b int32) int {
	x, y := w.value(a), w.value(b)
	kx, ky := x.kept, y.kept
	if w.keep {
		kx -= w.dp.g.Rows[a]
		ky -= w.dp.g.Rows[b]
	}
	switch {
	case x.under != y.under:
		return sign(x.under < y.under)
	case kx != ky:
		return sign(kx > ky)
	case x.ranges != y.ranges:
		return sign(x.ranges < y.ranges)
	}
	return 0
}

func sign(better bool) int {
	if better {
		return -1
	}
	return 1
}

// less reports whether the last range of a plan, which ends at position d, should start at position a rather than at b.
// A position is the index of a key at which ranges may begin.
func (w *window) less(a, b, d int32) bool {
	if r := w.rank(a, b); r != 0 {
		return r < 0
	}
	return w.dp.total(w.value(a), a, d).Cmp(w.dp.total(w.value(b), b, d)) < 0
}

// An envelope holds those possible starts of a range that are the best ones for some end of the range. Starts are added
// in one direction: upwards (direction 1) or downwards (-1). The ends for which the best start is asked go in the same
// direction.
//
// All starts of an envelope are equal in the first three criteria (see window.rank).
type envelope struct {
	w         *window
	direction int64
	lines     []line
	front     int
}

// A line is one element of an envelope: a possible start c of a range. Of the ends that a range may have, it is better
// than the element before it for all from some place on. The field from gives this place, as the number 2 (rows below
// it - target rows) times the direction of the envelope.
type line struct {
	c    int32
	from int64
}

func (e *envelope) reset(w *window, direction int64) {
	e.w, e.direction, e.lines, e.front = w, direction, e.lines[:0], 0
}

func (e *envelope) push(c int32) {
	if len(e.lines) > 0 {
		// Nothing leaves an envelope, so a candidate of worse rank never gets its turn.
		switch e.w.rank(c, e.lines[len(e.lines)-1].c) {
		case 1:
			return
		case -1:
			e.lines, e.front = e.lines[:0], 0
		}
	}
	from := -far * 4
	for len(e.lines) > e.front {
		top := e.lines[len(e.lines)-1]
		from = e.crossing(top.c, c)
		if len(e.lines) == e.front+1 || from > top.from {
			break
		}
		e.lines = e.lines[:len(e.lines)-1]
	}
	e.lines = append(e.lines, line{c, from})
}

// crossing compares two starts of a range: a, and b, which was added later. It returns a bound: b is at least as good
// as a for the ends of the range whose value is at least the result. The value of an end is 2 (rows below it - target
// rows) times the direction of the envelope.
func (e *envelope) crossing(a, b int32) int64 {
	// With x the rows below a candidate and X the rows below the end less the target, b is as good as a where s(b) +
	// (X-x(b))^2 <= s(a) + (X-x(a))^2; for x(b) > x(a) that is 2X >= x(a) + x(b) + (s(b)-s(a)) / (x(b)-x(a)). Downwards
	// all signs of x and X are reversed.
	xa, xb := e.direction*e.w.dp.g.Rows[a], e.direction*e.w.dp.g.Rows[b]
	sa, sb := e.w.value(a).squares, e.w.value(b).squares
	if xa == xb {
		if sb.Cmp(sa) < 0 {
			return -far * 2
		}
		return far * 2
	}
	return xa + xb + ceilDiv(sb, sa, xb-xa)
}

// query returns the best start for a range with a given end, or -1 if the envelope is empty. axis describes the end: it
// is the number of rows below the end, less the target number of rows.
func (e *envelope) query(axis int64) int32 {
	if len(e.lines) == 0 {
		return -1
	}
	for e.front+1 < len(e.lines) && e.lines[e.front+1].from <= 2*axis*e.direction {
		e.front++
	}
	return e.lines[e.front].c
}

// far stands for infinity: ceilDiv returns at most far, and at least -far. It exceeds any sum of a few row counts, and
// adding such a sum to it does not overflow.
const far = int64(1) << 61

// ceilDiv returns (a-b)/d, rounded up to an integer, for d > 0. A result above far becomes far, and one below -far
// becomes -far.
func ceilDiv(a, b grid.Uint128, d int64) int64 {
	if a.Cmp(b) >= 0 {
		return divide(a.Sub(b), d, true)
	}
	return -divide(b.Sub(a), d, false)
}

func divide(v grid.Uint128, d int64, up bool) int64 {
	if v.Hi >= uint64(d) {
		return far
	}
	q, r := bits.Div64(v.Hi, v.Lo, uint64(d))
	if up && r > 0 && q < uint64(far) {
		q++
	}
	if q > uint64(far) {
		return far
	}
	return int64(q)
}
