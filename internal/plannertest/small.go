// Package plannertest makes layouts for the tests and benchmarks of planners:
// tiny awkward ones that brute force can plan, and the kinds that occur in life.
package plannertest

import (
	"fmt"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/rebalance"
)

// Small returns a random layout with at most so many positions to cut at, and
// limits that make its choices hard: ties, empty partitions, quanta over the
// maximum, pins, limits that cannot be met. It draws from r alone.
func Small(r *rand.Rand, positions int) (*rebalance.Layout, rebalance.Limits) {
	l := &rebalance.Layout{Bucket: "small"}
	key := byte('a')
	next := func() rebalance.Key { key++; return rebalance.Key([]byte{key}) }
	most := []int64{2, 4, 10, 40}[r.IntN(4)]
	left := 1 + r.IntN(positions)
	for i := 0; left > 0; i++ {
		p := rebalance.Partition{ID: fmt.Sprintf("p%d", i), Pinned: r.IntN(5) == 0}
		if i > 0 {
			p.Start = next()
		}
		n := r.IntN(min(left, 6) + 1)
		for j := range n {
			q := rebalance.Quantum{Key: p.Start, Rows: r.Int64N(most + 1)}
			if j > 0 || left > n && r.IntN(3) == 0 {
				q.Key = next()
			}
			switch r.IntN(12) {
			case 0:
				q.Rows = 0
			case 1:
				q.Rows *= 5
			}
			p.Quanta = append(p.Quanta, q)
		}
		used := n
		if n == 0 || p.Quanta[0].Key != p.Start {
			used++
		}
		left -= used
		l.Partitions = append(l.Partitions, p)
	}
	lim := rebalance.Limits{MaxRows: 1 + r.Int64N(4*most), HorizonS: 60}
	if r.IntN(5) > 0 {
		lim.MinRows = r.Int64N(lim.MaxRows + 1)
	}
	lim.TargetRows = r.Int64N(lim.MaxRows + 2)
	return l, lim
}
