package balancer

import (
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// smallSince remembers since when a partition has fewer rows than the minimum; zero: it has more. What is forgotten
// delays a merge.
func (b *Balancer) smallSince(id store.PartitionID, s *counter.Stats, now time.Time) time.Time {
	at, was := b.small.Get(id)
	switch {
	case !s.Known:
	case s.Rows >= b.o.Policy.MinRows:
		b.small.Remove(id)
		return time.Time{}
	case !was:
		at = now
		b.small.Add(id, at)
	}
	return at
}
