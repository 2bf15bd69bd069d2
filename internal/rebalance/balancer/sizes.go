package balancer

import "github.com/evenkeel/evenkeel/internal/rebalance/policy"

// SizeSteps are the upper bounds of Sizes.Partitions, as shares of the maximum; the last one has none.
var SizeSteps = [...]float64{0, 0.25, 0.5, 0.75, 1, 1.2, 2}

// Sizes are those of all partitions whose size is known, by one look at everything.
type Sizes struct {
	Partitions [len(SizeSteps) + 1]int64
	// Rows is their sum; Unknown counts the other partitions. Old ones have not been confirmed for long.
	Rows, Unknown, Old int64
}

func (s *Sizes) add(l *policy.Input, maxRows int64) {
	for i := range l.Ranges {
		x := &l.Ranges[i].Stats
		if !x.Known {
			s.Unknown++
			continue
		}
		k := 0
		for k < len(SizeSteps) && float64(x.Rows) > SizeSteps[k]*float64(maxRows) {
			k++
		}
		s.Partitions[k]++
		s.Rows += x.Rows
	}
}
