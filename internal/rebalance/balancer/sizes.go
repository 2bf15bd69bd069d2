package balancer

import (
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// SizeSteps are the upper bounds of the size classes in Sizes.Partitions, as shares of the maximum number of rows. For
// example, the class with the bound 0.25 has partitions with up to a quarter of the maximum. One more class, for the
// largest partitions, follows the last bound.
var SizeSteps = [...]float64{0, 0.25, 0.5, 0.75, 1, policy.Urgent, 2}

// Sizes are the numbers of partitions in each size class, e.g. of those with up to a quarter of the maximum number of
// rows. The numbers are found by one check of all buckets.
type Sizes struct {
	Partitions [len(SizeSteps) + 1]int64
	// Rows is the sum of the rows of all partitions of known size. Unknown is the number of partitions of unknown size.
	// Old is the number of partitions whose last exact count is old.
	Rows, Unknown, Old int64
}

// add counts a partition in its size class. x are the counts of the partition. maxRows is the maximum number of rows of
// a range.
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

// TooLarge returns the number of partitions with more than policy.Urgent (1.2) times the maximum number of rows, whose
// ranges should be split at once.
func (s *Sizes) TooLarge() (n int64) {
	for k, step := range SizeSteps {
		if step >= policy.Urgent {
			n += s.Partitions[k+1]
		}
	}
	return n
}

// sum adds the numbers in o, which are those of one bucket, to the numbers in s.
func (s *Sizes) sum(o *Sizes) {
	for k := range s.Partitions {
		s.Partitions[k] += o.Partitions[k]
	}
	s.Rows += o.Rows
	s.Unknown += o.Unknown
	s.Old += o.Old
}
