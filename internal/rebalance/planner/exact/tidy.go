package exact

import "github.com/evenkeel/evenkeel/internal/rebalance/grid"

// tidy changes the plan d to need fewer moves, without making the plan worse. It moves cuts that lie amid keys without
// rows to starts of today's ranges, and lets partitions without rows keep their ids.
func tidy(g *grid.Grid, d grid.Draft) {
	// The dynamic program does not care about such choices.
	keepEmpty(g, d)
	for i := 1; i < len(d); i++ {
		snap(g, d, i)
	}
	keepEmpty(g, d)
}

// keepEmpty lets each range of the plan d that has no rows keep the id of its old partition, if no other range keeps
// this id. Then the empty range needs no move.
func keepEmpty(g *grid.Grid, d grid.Draft) {
	kept := make([]bool, len(g.Layout.Partitions))
	for i := range d {
		if d[i].Keep {
			kept[g.Owner[d[i].Start]] = true
		}
	}
	for i := range d {
		if p, ok := d.Within(g, i); ok && !kept[p] && g.RowsIn(d[i].Start, d.End(g, i)) == 0 {
			d[i].Keep, kept[p] = true, true
		}
	}
}

// snap moves the start of range number i of the plan d, so that this range and the one before it need the fewest moves.
// It tries only keys at which both ranges have the same numbers of rows as before.
func snap(g *grid.Grid, d grid.Draft, i int) {
	at, low, high := d[i].Start, d[i-1].Start, d.End(g, i)
	if p := g.Owner[at]; g.Pinned(p) && g.First[p] == at {
		return
	}
	if d[i-1].Keep { // the piece before may not grow beyond its partition
		high = min(high, g.First[g.Owner[low]+1]+1)
	}
	if d[i].Keep {
		low = max(low, g.First[g.Owner[at]]-1)
	}
	// A piece that keeps its id needs no moves wherever it is cut.
	moves := func(cut int32) (n int32) {
		if !d[i-1].Keep {
			n += g.Owner[cut-1] - g.Owner[d[i-1].Start] + 1
		}
		if !d[i].Keep {
			n += g.Owner[d.End(g, i)-1] - g.Owner[cut] + 1
		}
		return n
	}
	best, fewest := at, moves(at)
	for _, step := range [2]int32{-1, 1} {
		for cut := at + step; cut > low && cut < high && g.Rows[cut] == g.Rows[at]; cut += step {
			if n := moves(cut); n < fewest {
				best, fewest = cut, n
			}
		}
	}
	d[i].Start = best
}
