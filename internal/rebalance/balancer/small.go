package balancer

import (
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// few is since when a partition has few rows, or none.
type few struct {
	since time.Time
	empty bool
}

// smallSince remembers since when a partition has fewer rows than the minimum; zero: it has more. It begins anew with
// the first row: until then it may have been cut ahead. What is forgotten delays a merge.
func (b *Balancer) smallSince(id store.PartitionID, s *counter.Stats, now time.Time) time.Time {
	x, was := b.small.Get(id)
	switch {
	case !s.Known:
	case s.Rows >= b.o.Policy.MinRows:
		b.small.Remove(id)
		return time.Time{}
	case !was, x.empty && s.Rows > 0:
		x = few{now, s.Rows == 0}
		b.small.Add(id, x)
	}
	return x.since
}
