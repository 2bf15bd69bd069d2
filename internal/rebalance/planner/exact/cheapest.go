package exact

import (
	"context"
	"math"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// few is the largest number of ranges that Cheapest may try. Trying that many takes less than a second; with more, the
// planner uses Solve instead.
const few = 1 << 24

// Few reports whether Cheapest finds the best plan for a layout (a bucket's partitions) in less than a second. Cheapest
// tries every possible range that is within the maximum number of rows; Few counts these ranges. g is the grid of the
// layout, which has the keys at which ranges may begin.
func Few(g *grid.Grid) bool {
	n, low := 0, int32(0)
	for d := int32(1); int(d) <= g.N; d++ {
		for g.RowsIn(low, d) > g.Limits.MaxRows && g.Divisible(low, d) {
			low++
		}
		n += int(d - low)
	}
	return n <= few
}

// Cheapest returns the best plan under the full objective: of the plans with the fewest ranges under the minimum number
// of rows, the one of least cost. The cost is a weighted sum with the weights w. The bounds of the plan's ranges are
// positions of g: indexes of keys at which ranges may begin. Cheapest fails only when ctx ends.
func Cheapest(ctx context.Context, g *grid.Grid, w rebalance.Weights) (grid.Draft, error) {
	// Every kind of cost is a sum over ranges. So at each key at which a range may end, each range that may end there
	// is tried, in the two variants that the package comment explains.
	best := make([][2]cheap, g.N+1) // [1]: the partition that the position divides has already kept its id
	for i := range best {
		best[i] = [2]cheap{{under: math.MaxInt32}, {under: math.MaxInt32}}
	}
	best[0][0].under = 0
	for d := int32(1); int(d) <= g.N; d++ {
		if d&0xfff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		owner := g.Owner[d-1]
		inside := g.First[owner+1] != d
		at := &best[d]
		for c := d - 1; c >= 0 && (g.RowsIn(c, d) <= g.Limits.MaxRows || !g.Divisible(c, d)); c-- {
			from := &best[c]
			same := g.Owner[c] == owner
			under, cost := g.Cost(c, d, false, w)
			for had := range 2 {
				has := 0
				if inside && same {
					has = had
				}
				at[has].improve(&from[had], under, cost, cheap{before: c, had: had == 1})
			}
			if same {
				has := 0
				if inside {
					has = 1
				}
				under, cost = g.Cost(c, d, true, w)
				at[has].improve(&from[0], under, cost, cheap{before: c, keep: true})
			}
			if p := g.Owner[c]; g.Pinned(p) && g.First[p] == c {
				break
			}
		}
	}
	n := 0
	s := &best[g.N][0]
	back := func() {
		had := 0
		if s.had {
			had = 1
		}
		s = &best[s.before][had]
	}
	for at := int32(g.N); at > 0; n++ {
		at = s.before
		back()
	}
	d := make(grid.Draft, n)
	for s = &best[g.N][0]; n > 0; n-- {
		d[n-1] = grid.Piece{Start: s.before, Keep: s.keep}
		back()
	}
	return d, nil
}

// cheap is an entry in the table of Cheapest: the cheapest plan for all keys below one key at which a range may begin.
// It holds only the cost of the plan and its last range, and says which entry has the ranges before.
type cheap struct {
	cost   float64
	under  int32
	before int32 // where the plan's last range starts
	had    bool  // in the plan below that range, the partition that `before` divides has kept its id
	keep   bool  // the last range keeps the id of its partition
}

// improve replaces s by another plan if the other plan is better. The other plan consists of the plan `below`, for
// lower keys, and one more range above it. The parameters are:
//   - under: 1 if this range is under the minimum number of rows, else 0
//   - cost: the cost that the range adds
//   - next: the other fields of the new plan
func (s *cheap) improve(below *cheap, under int, cost float64, next cheap) {
	if below.under == math.MaxInt32 {
		return
	}
	next.under, next.cost = below.under+int32(under), below.cost+cost
	if next.under < s.under || next.under == s.under && next.cost < s.cost {
		*s = next
	}
}
