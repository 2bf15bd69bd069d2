package balancer

import (
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// SizeSteps are the upper bounds of the size classes in Sizes.Partitions, as shares of the maximum number of rows. One
// more class, for larger partitions, follows the last bound.
var SizeSteps = [...]float64{0, 0.25, 0.5, 0.75, 1, policy.Urgent, 2}

// Sizes counts all partitions by their number of rows. The numbers were found by one look at all buckets.
type Sizes struct {
	Partitions [len(SizeSteps) + 1]int64
	// Rows is the sum of the rows of these partitions. Unknown is the number of partitions of unknown size. Old is the
	// number of partitions whose size nothing has confirmed for long.
	Rows, Unknown, Old int64
}

// add adds a partition to the numbers in s. x are the counts of the partition. maxRows is the maximum number of rows of
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

// TooLarge returns the number of partitions that are much too large: they have more than policy.Urgent (1.2) times the
// maximum number of rows.
func (s *Sizes) TooLarge() (n int64) {
	for k, step := range SizeSteps {
		if step >= policy.Urgent {
			n += s.Partitions[k+1]
		}
	}
	return n
}

// sum adds the numbers of partitions in o to those in s.
func (s *Sizes) sum(o *Sizes) {
	for k := range s.Partitions {
		s.Partitions[k] += o.Partitions[k]
	}
	s.Rows += o.Rows
	s.Unknown += o.Unknown
	s.Old += o.Old
}
