package forecast

import (
	"math"
	"slices"
)

// line is value against rank.
type line struct {
	// perRow is by how much the value grows from row to row.
	perRow float64
	// missing is how many rows are still to come below the highest: where several append, or some come late, the last
	// part of the keys is thinner than the rest.
	missing float64
	// off is the largest distance between the shares of keys and of values below a point (the Kolmogorov-Smirnov
	// distance): 0 to 1.
	off float64
	// uneven is the coefficient of variation of the gaps: 0 for a counter, about 1 for values by chance.
	uneven float64
}

// blocks is into how many parts the keys are divided, to see whether some of them are unlike the rest.
const blocks = 8

// fit fits a line to values that ascend, equal ones among them; at least Fewest, the last above the first. Where parts
// differ by more than chance it takes the denser: cuts that are too close cost some half-filled partitions, ones too
// far apart make partitions too large.
func fit(xs []float64) line {
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

// least is how much denser than the whole a part may be, in units per row: what is denser still is a burst.
const least = 0.3

// thinner takes into account the keys below those that the line was fitted to, of values that ascend too: the last part
// of all may be thin because rows are still to come.
func (l *line) thinner(below []float64) {
	if len(below) < Fewest {
		return
	}
	n := len(below) - 1
	if before := (below[n] - below[0]) / float64(n); before < 0.8*l.perRow && before >= least*l.perRow {
		l.perRow = before
	}
}

// uneven is the coefficient of variation of the gaps.
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

// off is the largest distance of values from a line between the first and the last.
func off(xs []float64) (most float64) {
	n := len(xs) - 1
	for i := 0; i <= n; {
		j := i
		for j < n && xs[j+1] == xs[i] {
			j++
		}
		at := (xs[i] - xs[0]) / (xs[n] - xs[0])
		// Of equal values the middle one counts.
		mid := float64(i+j) / 2 / float64(n)
		most = max(most, math.Abs(at-mid))
		i = j + 1
	}
	return most
}

// even says whether n keys lie near enough to a line.
func (l *line) even(n int) bool {
	return l.off <= 0.1+0.6/math.Sqrt(float64(n))
}

// sure is how well they lie on it.
func (l *line) sure() float64 { return math.Round(100*max(0, 1-2*l.off)) / 100 }
