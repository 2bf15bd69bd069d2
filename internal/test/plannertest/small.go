// Package plannertest makes layouts for the tests and benchmarks of planners: tiny awkward layouts that brute force can
// plan, and the kinds of layouts that occur in real buckets.
package plannertest

import (
	"fmt"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/rebalance"
)

// Small returns a random layout with at most the given number of positions to cut at. Its limits make the choices
// difficult: ties, empty partitions, quanta over the maximum, pins, and limits that cannot be met. The result depends
// only on r.
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

// Load gives random load and growth to the partitions of a layout.
func Load(r *rand.Rand, l *rebalance.Layout) {
	for i := range l.Partitions {
		p := &l.Partitions[i]
		p.WritesPerS = float64(r.IntN(60))
		p.GrowthRowsPerS = float64(r.IntN(9)-4) / 8
	}
}

// Rates returns the writes and the growth of range i of a plan, from their definition. They are divided like rows. If a
// partition has no rows, they belong to the partition's last key.
func Rates(l *rebalance.Layout, p *rebalance.Plan, i int) (writes, growth float64) {
	inside := func(k rebalance.Key) bool {
		return k >= p.Ranges[i].Start && (i+1 == len(p.Ranges) || k < p.Ranges[i+1].Start)
	}
	for j := range l.Partitions {
		old := &l.Partitions[j]
		share := 0.0
		if rows := old.Rows(); rows > 0 {
			for _, q := range old.Quanta {
				if inside(q.Key) {
					share += float64(q.Rows) / float64(rows)
				}
			}
		} else {
			last := old.Start
			if n := len(old.Quanta); n > 0 {
				last = old.Quanta[n-1].Key
			}
			if inside(last) {
				share = 1
			}
		}
		writes += share * old.WritesPerS
		growth += share * old.GrowthRowsPerS
	}
	return writes, growth
}
