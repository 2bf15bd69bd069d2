package balancer

import (
	"hash/fnv"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// few is since when a range has few rows, or none.
type few struct {
	since time.Time
	empty bool
}

// beginning names a range by the hash of its start, which it keeps when it goes to another partition: a refresh, or a
// merge after which it is still small, does not make it new.
type beginning struct {
	bucket store.BucketID
	start  uint64
}

func beginningOf(id store.BucketID, rg *partmap.Range) beginning {
	h := fnv.New64a()
	_, _ = h.Write(rg.Start)
	return beginning{id, h.Sum64()}
}

// smallSince remembers since when a range has fewer rows than the minimum; zero: it has more. It begins anew with the
// first row: until then it may have been cut ahead. What is forgotten delays a merge.
func (b *Balancer) smallSince(at beginning, s *counter.Stats, now time.Time) time.Time {
	x, was := b.small.Get(at)
	switch {
	case !s.Known:
	case s.Rows >= b.o.Policy.MinRows:
		b.small.Remove(at)
		return time.Time{}
	case !was, x.empty && s.Rows > 0:
		x = few{now, s.Rows == 0}
		b.small.Add(at, x)
	}
	return x.since
}
