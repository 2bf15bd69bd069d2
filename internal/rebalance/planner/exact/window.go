package exact

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
)

// A window finds, for one target position after the other, the best position in
// a window of earlier ones to start the last range at. Windows move forward only
// (both ends), which is what makes this fast.
//
// What a range from c to d costs has two parts. The first three criteria depend
// on c alone while d stays within the kind of window at hand (rank below). The
// last one, (rows(c,d)-target)^2, satisfies the quadrangle inequality: of two
// candidates of equal rank, once the later one is better it stays better. So the
// candidates that can still win form the lower envelope of lines (the convex
// hull trick), and each query is a step along it.
//
// Candidates also leave a window at its left end, and an envelope cannot forget:
// what it dropped in favour of a candidate that has left might now win. So a
// window is kept as two envelopes that meet at a checkpoint. The right one takes
// in candidates beyond it and forgets none. The left one would lose candidates
// one by one; it is computed backwards instead, for all targets whose window
// reaches to the checkpoint or below: going back they gain candidates. That
// answers each target once, so that all of it is linear.
//
// With the quadrangle inequality the idea is that of D. Eppstein, Z. Galil and
// R. Giancarlo, "Speeding up dynamic programming" (1988); the two stacks are
// those of a queue made of two.
type window struct {
	dp *programme
	// value returns a candidate.
	value func(c int32) *state
	// keep says that the last range keeps its id: a candidate then ranks by what
	// was kept before it, less its own rows, since the rows up to d are added.
	keep bool
	// low returns the first candidate of a target.
	low func(d int32) int32

	checkpoint int32 // the last candidate of the left part; -1 if there is none
	leftUntil  int32 // left holds the answers for targets up to here
	left       []int32
	right      envelope
	added      int32 // candidates below it are in the right envelope or left of it
}

// reset empties the window; candidates begin at base.
func (w *window) reset(base int32) {
	w.checkpoint, w.leftUntil, w.added = base-1, -1, base
	w.right.reset(w, 1)
}

// best returns the best candidate for target d among low(d)..high, or -1. Calls
// must have d and high in order; last is the last target that may still be asked
// for before the next reset.
func (w *window) best(d, high, last int32) int32 {
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

// back answers the left part of the window for each target from d on whose
// window reaches the checkpoint.
func (w *window) back(d, last int32) {
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

// rank compares the first three criteria of two candidates: -1 if a is better.
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

// less says whether candidate a is better than b for target d.
func (w *window) less(a, b, d int32) bool {
	if r := w.rank(a, b); r != 0 {
		return r < 0
	}
	return w.dp.total(w.value(a), a, d).Cmp(w.dp.total(w.value(b), b, d)) < 0
}

// An envelope holds candidates of one rank, each of which is best for some
// target. Candidates are pushed in one direction, and targets asked for in the
// same: upwards (direction 1) or downwards (-1).
type envelope struct {
	w         *window
	direction int64
	lines     []line
	front     int
}

// A line is a candidate; from is twice the least axis, times the direction, from
// which it beats the line before it.
type line struct {
	c    int32
	from int64
}

func (e *envelope) reset(w *window, direction int64) {
	e.w, e.direction, e.lines, e.front = w, direction, e.lines[:0], 0
}

func (e *envelope) push(c int32) {
	if len(e.lines) > 0 {
		// Nothing leaves an envelope, so a lower rank never gets its turn.
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

// crossing returns twice the least axis, times the direction, from which b is at
// least as good as a, where b was pushed after a.
//
// With x the rows below a candidate and X the axis, b is as good as a where
// s(b) + (X-x(b))^2 <= s(a) + (X-x(a))^2; for x(b) > x(a) that is
// 2X >= x(a) + x(b) + (s(b)-s(a)) / (x(b)-x(a)). Downwards all signs of rows and
// of the axis turn over.
func (e *envelope) crossing(a, b int32) int64 {
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

// query returns the best candidate at an axis, or -1 if there is none.
func (e *envelope) query(axis int64) int32 {
	if len(e.lines) == 0 {
		return -1
	}
	for e.front+1 < len(e.lines) && e.lines[e.front+1].from <= 2*axis*e.direction {
		e.front++
	}
	return e.lines[e.front].c
}

// far is where ceilDiv saturates: farther than any sum of a few row
// counts, and small enough that such sums added to it do not overflow.
const far = int64(1) << 61

// ceilDiv returns (a-b)/d rounded up, for d > 0, saturated at plus or minus far.
func ceilDiv(a, b plan.Uint128, d int64) int64 {
	if a.Cmp(b) >= 0 {
		return divide(a.Sub(b), d, true)
	}
	return -divide(b.Sub(a), d, false)
}

func divide(v plan.Uint128, d int64, up bool) int64 {
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
