package foresee

import (
	"math"
	"slices"
)

// line is value against rank.
type line struct {
	// perRow is by how much the value grows from row to row.
	perRow float64
	// missing is how many rows are still to come below the highest: where several
	// append, or some come late, the last part of the keys is thinner than the rest.
	missing float64
	// off is the largest distance between the shares of keys and of values below a
	// point (the Kolmogorov-Smirnov distance): 0 to 1.
	off float64
	// uneven is the coefficient of variation of the gaps: 0 for a counter, about 1 for
	// values by chance.
	uneven float64
}

// blocks is into how many parts the keys are divided, to see whether some of them
// are unlike the rest.
const blocks = 8

// fit fits a line to values that ascend, equal ones among them; at least Fewest, the
// last above the first. Where parts differ by more than chance it takes the denser:
// cuts that are too close cost some half-filled partitions, ones too far apart make
// partitions too large.
func fit(xs []float64) line {
	n := len(xs) - 1 // gaps
	whole := (xs[n] - xs[0]) / float64(n)
	l := line{perRow: whole}
	sum := 0.0
	for i := range n {
		d := (xs[i+1]-xs[i])/whole - 1
		sum += d * d
	}
	l.uneven = math.Sqrt(sum / float64(n))
	l.off = off(xs)
	half := n / 2
	low, high := (xs[half]-xs[0])/float64(half), (xs[n]-xs[half])/float64(n-half)
	chance := 3 * l.uneven / math.Sqrt(float64(half))
	const least = 0.3 // of the whole: what is denser is a burst
	denser := func(part float64) bool {
		return part < l.perRow*(1-chance) && part >= whole*least
	}
	if denser(low) && low < high {
		l.perRow = low
		l.missing = max(0, (xs[n]-xs[half])/low-float64(n-half))
		l.off = min(l.off, off(xs[:half+1]))
	}
	if denser(high) && high < low {
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
