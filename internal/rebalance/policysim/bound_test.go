package policysim

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// entropy is that of two shares, p and 1 - p: how full ranges are on average that are cut so when they are full, while
// all grow alike. For the mean of ln(rows), weighted by rows, gains 1 while the load grows e-fold, and each cut of a
// full range takes the entropy from it.
func entropy(p float64) float64 { return -p*math.Log(p) - (1-p)*math.Log(1-p) }

// smaller is the share p of the smaller part, up to one half, with f(p) = want; f grows with p.
func smaller(f func(p float64) float64, want float64) float64 {
	low, high := 1e-9, 0.5
	for range 100 {
		if p := (low + high) / 2; f(p) < want {
			low = p
		} else {
			high = p
		}
	}
	return low
}

// leastCopied is how many rows must be copied per row of a load that grows all over and may end at any size, if there
// are to be so many times the fewest ranges at most; false: no cuts of full ranges do it. More parts at once are several
// cuts, a range that is not full gains less for the same share of its rows, and a mixture of shares less than their
// mean, as the entropy is concave: so one share is best.
func leastCopied(ranges float64) (float64, bool) {
	p := smaller(entropy, 1/ranges)
	return p * ranges, 1/ranges <= math.Ln2
}

// fewestRanges is the reverse: how many times the fewest ranges there are if so many rows are copied per row.
func fewestRanges(copied float64) float64 {
	return 1 / entropy(smaller(func(p float64) float64 { return p / entropy(p) }, copied))
}

// What scenarios miss is compared in bench/results/policy.md with what can be reached.
func TestBounds(t *testing.T) {
	doc, err := os.ReadFile("../../../bench/results/policy.md")
	require.NoError(t, err)
	says := func(format string, args ...any) { require.Contains(t, string(doc), fmt.Sprintf(format, args...)) }

	copied, _ := leastCopied(45. / 30)
	says("%.2f copied for 45 ranges, or %.0f ranges for 0.44", copied, 30*fewestRanges(0.44))
	says("%.0f ranges for 0.35", 30*fewestRanges(0.35))
	for _, ranges := range []float64{50. / 35, 65. / 50} {
		_, can := leastCopied(ranges)
		require.False(t, can, "cuts of full ranges leave them %.2f full at most", math.Ln2)
	}
	says("%.0f ranges for 0.46", 35*fewestRanges(0.46))
	copied, _ = leastCopied(89. / 50)
	says("%.2f copied for 89 ranges", copied)
	copied, _ = leastCopied(53. / 30)
	says("%.2f copied for 53 ranges", copied)

	// Ranges are cut in a quarter and the rest where copies are to be few.
	full := entropy(0.25)
	says("%.0f ranges for 6,000 rows", math.Ceil(6/full))
	says("%.0f ranges for 3,000 rows", math.Ceil(3/full))

	each := forecast.Fill * 1000
	says("%.1f ranges on average", 3000/each+1)
	// A range that is about to be full is cut where it ends, and ahead: that one has the rest of it.
	says("%.0f ranges, every other one %.1f full", math.Ceil(35/((1+forecast.Fill)/2)), forecast.Fill)

	// Keys are counted after a second, and the first cut ahead takes effect some time after the first look: until then
	// one range takes all rows, and is cut in two if they are too many. The last range stays for more appends.
	s, _, err := Builtin("uuidv7-100")
	require.NoError(t, err)
	o := s.options()
	first := 100 * (time.Second + o.Policy.Effect).Seconds()
	require.Greater(t, first, float64(s.MaxRows))
	says("%.0f ranges, two of them for the first %.0f rows", 2+math.Ceil((24_000-first)/each)+1, first)
}
