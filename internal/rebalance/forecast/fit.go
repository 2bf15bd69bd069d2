package forecast

import (
	"math"
	"slices"
)

// line is a straight line through the values in keys, such as numbers or times. It gives the value of the n-th key, and
// tells how well the values fit the line.
type line struct {
	// perRow is the growth of the value from one row to the next.
	perRow float64
	// missing is the number of rows that are still expected below the highest key. If several writers append, or if
	// some rows come late, the highest keys lie farther apart than the others.
	missing float64
	// off is the largest difference, over all values, between the share of keys below the value and the share that the
	// line has below it (the Kolmogorov-Smirnov distance). off is from 0 to 1.
	off float64
	// uneven is the standard deviation of the gaps between the values as a share of the mean gap. uneven is 0 for a
	// counter and about 1 for random values.
	uneven float64
}

// blocks is the number of parts of equal size into which fit divides the keys. It compares how fast the values grow in
// each part.
const blocks = 8

// fit returns a straight line through the values xs: the growth of the values from one row to the next. There must be
// at least 8 values (Fewest), in ascending order and not all equal. If the values grow faster in some parts than in
// others, the line follows the part in which they grow least.
func fit(xs []float64) line {
	// The line of least growth makes cuts closer: cuts that are too close cost some half-filled partitions, but cuts
	// too far apart make partitions too large.
	n := len(xs) - 1 // gaps
	whole := (xs[n] - xs[0]) / float64(n)
	l := line{perRow: whole}
	l.uneven = uneven(xs)
	l.off = off(xs)
	half := n / 2
	low, high := (xs[half]-xs[0])/float64(half), (xs[n]-xs[half])/float64(n-half)
	denser := func(part float64, of []float64) bool {
		chance := 3 * uneven(of) / math.Sqrt(float64(half))
		return part < l.perRow*(1-chance) && part >= whole*least
	}
	if low < high && denser(low, xs[:half+1]) {
		l.perRow = low
		l.missing = max(0, (xs[n]-xs[half])/low-float64(n-half))
		l.off = min(l.off, off(xs[:half+1]))
	}
	if high < low && denser(high, xs[half:]) {
		l.perRow = high
	}
	if n >= 4*blocks {
		parts := make([]float64, blocks)
		for b := range parts {
			from, to := b*n/blocks, (b+1)*n/blocks
			parts[b] = (xs[to] - xs[from]) / float64(to-from)
		}
		slices.Sort(parts)
		if mid := (parts[blocks/2-1] + parts[blocks/2]) / 2; mid < l.perRow && mid >= whole*least {
			l.perRow = mid
		}
	}
	return l
}

// least is the limit below which fit ignores a part of the keys, since it is a short burst of rows. It is the growth of
// the values in that part from row to row, as a share of the mean growth of all keys.
const least = 0.3

// thinner lowers the growth of the line to that of older keys, if their values clearly grow less from row to row. The
// parameter below has the values in the keys just below those from which the line was made, in ascending order.
func (l *line) thinner(below []float64) {
	// The highest keys may have gaps only because some of their rows are still to come.
	if len(below) < Fewest {
		return
	}
	n := len(below) - 1
	if before := (below[n] - below[0]) / float64(n); before < 0.8*l.perRow && before >= least*l.perRow {
		l.perRow = before
	}
}

// uneven returns the standard deviation of the gaps between the values xs, as a share of the mean gap. The result is 0
// if all gaps are equal.
func uneven(xs []float64) float64 {
	n := len(xs) - 1
	mean := (xs[n] - xs[0]) / float64(n)
	if mean <= 0 {
		return 0
	}
	sum := 0.0
	for i := range n {
		d := (xs[i+1]-xs[i])/mean - 1
		sum += d * d
	}
	return math.Sqrt(sum / float64(n))
}

// off returns the largest distance of the values xs from the straight line between the first and the last value. The
// result is a share of the difference between these two values, from 0 to 1.
func off(xs []float64) (most float64) {
	n := len(xs) - 1
	for i := 0; i <= n; {
		j := i
		for j < n && xs[j+1] == xs[i] {
			j++
		}
		at := (xs[i] - xs[0]) / (xs[n] - xs[0])
		// Equal values count once, at the middle of their ranks.
		mid := float64(i+j) / 2 / float64(n)
		most = max(most, math.Abs(at-mid))
		i = j + 1
	}
	return most
}

// even reports whether n keys lie near enough to the line for a forecast. The limit is wider for few keys, since these
// may be off the line by chance.
func (l *line) even(n int) bool {
	return l.off <= 0.1+0.6/math.Sqrt(float64(n))
}

// sure returns how well the keys fit the line, in steps of 0.01: 1 means exactly on the line, and 0 means far from the
// line.
func (l *line) sure() float64 { return math.Round(100*max(0, 1-2*l.off)) / 100 }
