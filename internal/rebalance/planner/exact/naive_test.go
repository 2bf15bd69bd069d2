package exact_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

// naive is the same recursion without windows or envelopes: every pair of
// positions is tried. It is too slow for real layouts, and the oracle for those
// that are too large for brute force.
func naive(l *rebalance.Layout, limits rebalance.Limits) plannertest.Verdict {
	var sums, filled = []int64{0}, []int{0}
	var owner []int
	var first []int
	for i, p := range l.Partitions {
		first = append(first, len(owner))
		quanta := p.Quanta
		if len(quanta) == 0 || quanta[0].Key != p.Start {
			quanta = append([]rebalance.Quantum{{}}, quanta...)
		}
		for _, q := range quanta {
			n := len(owner)
			sums, filled, owner = append(sums, sums[n]+q.Rows), append(filled, filled[n]), append(owner, i)
			if q.Rows > 0 {
				filled[n+1]++
			}
		}
	}
	n := len(owner)
	first = append(first, n)
	if sums[n] < limits.MinRows {
		limits.MinRows = 0
	}
	pins := make([]int, n+1) // pinned starts up to a position
	for i, p := range l.Partitions {
		if p.Pinned && first[i] > 0 {
			pins[first[i]]++
		}
	}
	for i := 1; i <= n; i++ {
		pins[i] += pins[i-1]
	}

	type value struct {
		ok bool
		v  plannertest.Verdict
	}
	best := make([][2]value, n+1)
	best[0][0] = value{ok: true}
	for d := 1; d <= n; d++ {
		interior := d < n && first[owner[d]] != d
		for c := 0; c < d; c++ {
			last := d - 1 // a pin at d itself is cut, and one at c too
			if pins[last] > pins[c] {
				continue
			}
			rows := sums[d] - sums[c]
			if rows > limits.MaxRows && filled[d]-filled[c] > 1 {
				continue
			}
			same := owner[c] == owner[d-1]
			for had := range 2 {
				from := best[c][had]
				if !from.ok {
					continue
				}
				for keep := range 2 {
					if keep == 1 && (!same || had == 1) {
						continue
					}
					to := from.v
					if rows < limits.MinRows && (keep == 0 || !l.Partitions[owner[c]].Pinned) {
						to.UnderMin++
					}
					if keep == 0 {
						to.RowsMoved += rows
					}
					to.Ranges++
					to.Square(rows - limits.TargetRows)
					has := 0
					if interior && (keep == 1 || same && had == 1) {
						has = 1
					}
					if at := &best[d][has]; !at.ok || to.Less(at.v) {
						*at = value{true, to}
					}
				}
			}
		}
	}
	return best[n][0].v
}

// dense draws one or two partitions of many small quanta: the number of ranges
// is soon clear, and nearly everything is a tie but for the squares.
func dense(r *rand.Rand) (*rebalance.Layout, rebalance.Limits) {
	l := &rebalance.Layout{Bucket: "dense"}
	most := 1 + r.Int64N(9)
	for i := range 1 + r.IntN(2) {
		p := rebalance.Partition{ID: fmt.Sprintf("p%d", i)}
		for j := range 40 + r.IntN(80) {
			p.Quanta = append(p.Quanta,
				rebalance.Quantum{Key: rebalance.Key(fmt.Sprintf("%d%04d", i, j)), Rows: 1 + r.Int64N(most)})
		}
		if i > 0 {
			p.Start = p.Quanta[0].Key
		}
		l.Partitions = append(l.Partitions, p)
	}
	lim := rebalance.Limits{MaxRows: most * (2 + r.Int64N(30))}
	lim.MinRows = r.Int64N(1 + lim.MaxRows/4)
	lim.TargetRows = lim.MinRows + r.Int64N(lim.MaxRows-lim.MinRows)
	return l, lim
}

// medium draws a layout of some hundred positions in which windows are long:
// many rows per partition or few, many ties or none, few pins.
func medium(r *rand.Rand) (*rebalance.Layout, rebalance.Limits) {
	l := &rebalance.Layout{Bucket: "medium"}
	if r.IntN(2) == 0 {
		return dense(r)
	}
	most := []int64{1, 3, 100, 1 << 40}[r.IntN(4)]
	pin := []int{3, 30, 1000}[r.IntN(3)]
	per := []int{1, 3, 12, 60}[r.IntN(4)]
	zero := 2 + r.IntN(10)
	key := 0
	var all int64
	for i := 0; key < 30+r.IntN(120); i++ {
		p := rebalance.Partition{ID: fmt.Sprintf("p%d", i), Pinned: r.IntN(pin) == 0}
		if i > 0 {
			p.Start = rebalance.Key(fmt.Sprintf("%04d", key))
		}
		for range r.IntN(per + 1) {
			q := rebalance.Quantum{Key: rebalance.Key(fmt.Sprintf("%04d", key)), Rows: 1 + r.Int64N(most)}
			if r.IntN(zero) == 0 {
				q.Rows = 0
			}
			if r.IntN(40) == 0 {
				q.Rows *= 30
			}
			all += q.Rows
			key++
			p.Quanta = append(p.Quanta, q)
		}
		key++
		l.Partitions = append(l.Partitions, p)
	}
	lim := rebalance.Limits{MaxRows: 1 + r.Int64N(1+min(all, most*int64(2+r.IntN(60))))}
	if r.IntN(5) > 0 {
		lim.MinRows = r.Int64N(lim.MaxRows + 1)
	}
	if r.IntN(3) == 0 {
		lim.MinRows /= 4
	}
	lim.TargetRows = r.Int64N(lim.MaxRows + 2)
	return l, lim
}

func TestEqualsNaiveRecursion(t *testing.T) {
	cases := 2000
	if testing.Short() {
		cases = 300
	}
	for seed := range uint64(cases) {
		l, limits := medium(rand.New(rand.NewPCG(seed, 2)))
		require.Empty(t, rebalance.Validate(l, limits), "seed %d", seed)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rowsOnly)
		require.NoError(t, err)
		require.Empty(t, rebalance.Check(l, limits, p), "seed %d", seed)
		require.Equal(t, naive(l, limits), plannertest.NewOracle(l, limits).Judge(p), "seed %d: best, and the plan's",
			seed)
	}
}
