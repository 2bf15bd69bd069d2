package plannertest

import (
	"math"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Separable returns the lowest cost that any plan has under the full objective, and the smallest number of ranges below
// the minimum size. Each term of the cost is a sum over ranges. So dynamic programming over all ranges finds the
// optimum, though slowly. Tests compare the genetic planner with that optimum.
func Separable(l *rebalance.Layout, limits rebalance.Limits, w rebalance.Weights) (under int, cost float64) {
	g := grid.New(l, limits)
	type value struct {
		under int
		cost  float64
	}
	worst := value{math.MaxInt, 0}
	less := func(a, b value) bool { return a.under < b.under || a.under == b.under && a.cost < b.cost }
	best := make([][2]value, g.N+1) // [1]: the id of the partition that is cut was kept
	best[0][1] = worst
	for d := int32(1); int(d) <= g.N; d++ {
		best[d] = [2]value{worst, worst}
		p := g.Owner[d-1]
		interior := g.First[p+1] != d
		for c := d - 1; c >= 0; c-- {
			if g.RowsIn(c, d) > g.Limits.MaxRows && g.Divisible(c, d) {
				break
			}
			same := g.Owner[c] == p
			for keep := range 2 {
				if keep == 1 && !same {
					continue
				}
				u, more := g.Cost(c, d, keep == 1, w)
				for had := range 2 {
					from := best[c][had]
					if from.under == math.MaxInt || had == 1 && same && keep == 1 {
						continue
					}
					to := value{from.under + u, from.cost + more}
					has := 0
					if interior && same && (had == 1 || keep == 1) {
						has = 1
					}
					if less(to, best[d][has]) {
						best[d][has] = to
					}
				}
			}
			if q := g.Owner[c]; g.Pinned(q) && g.First[q] == c {
				break
			}
		}
	}
	return best[g.N][0].under, best[g.N][0].cost - w.Ranges*float64(g.Fewest)
}

// BestFull returns the best score that any plan of a tiny layout has under the full objective. It tries every set of
// cuts, and every choice of which range keeps its partition's id.
func BestFull(l *rebalance.Layout, limits rebalance.Limits, o rebalance.Objective) rebalance.Score {
	g := grid.New(l, limits)
	var best rebalance.Score
	found := false
	var d grid.Draft
	kept := make([]bool, len(l.Partitions))
	var from func(start int32)
	from = func(start int32) {
		if int(start) == g.N {
			if s := g.Score(d, o); !found || s.Better(&best) {
				best, found = s, true
			}
			return
		}
		p := g.Owner[start]
		for end := start + 1; int(end) <= g.N; end++ {
			if end <= g.First[p+1] && !kept[p] {
				kept[p] = true
				d = append(d, grid.Piece{Start: start, Keep: true})
				from(end)
				d = d[:len(d)-1]
				kept[p] = false
			}
			d = append(d, grid.Piece{Start: start})
			from(end)
			d = d[:len(d)-1]
			if int(end) < g.N && g.Pinned(g.Owner[end]) && g.First[g.Owner[end]] == end {
				break
			}
		}
	}
	from(0)
	return best
}
