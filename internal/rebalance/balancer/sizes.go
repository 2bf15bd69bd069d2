package balancer

import (
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// SizeSteps are the upper bounds of Sizes.Partitions, as shares of the maximum; the last one has none.
var SizeSteps = [...]float64{0, 0.25, 0.5, 0.75, 1, policy.Urgent, 2}

// Sizes are those of all partitions whose size is known, by one look at everything.
type Sizes struct {
	Partitions [len(SizeSteps) + 1]int64
	// Rows is their sum; Unknown counts the other partitions. Old ones have not been confirmed for long.
	Rows, Unknown, Old int64
}

// add counts a partition.
func (s *Sizes) add(x *counter.Stats, maxRows int64) {
	if !x.Known {
		s.Unknown++
		return
	}
	k := 0
	for k < len(SizeSteps) && float64(x.Rows) > SizeSteps[k]*float64(maxRows) {
		k++
	}
	s.Partitions[k]++
	s.Rows += x.Rows
}

// TooLarge returns how many partitions have more than policy.Urgent times the maximum.
func (s *Sizes) TooLarge() (n int64) {
	for k, step := range SizeSteps {
		if step >= policy.Urgent {
			n += s.Partitions[k+1]
		}
	}
	return n
}

// sum adds the partitions of another part.
func (s *Sizes) sum(o *Sizes) {
	for k := range s.Partitions {
		s.Partitions[k] += o.Partitions[k]
	}
	s.Rows += o.Rows
	s.Unknown += o.Unknown
	s.Old += o.Old
}
