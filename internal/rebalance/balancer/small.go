package balancer

import (
	"hash/fnv"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// few says since when a range has had fewer rows than the minimum. empty is true if the range had no rows when that
// time began.
type few struct {
	since time.Time
	empty bool
}

// beginning identifies a range of keys by its bucket and the hash of its first key. Unlike a partition, the identity
// stays the same when the rows of the range are copied to another partition.
type beginning struct {
	bucket store.BucketID
	start  uint64
}

// beginningOf returns the identity of range rg of a bucket, which stays the same when the rows of the range move to
// another partition. The identity is the bucket with the hash of the first key of the range.
func beginningOf(id store.BucketID, rg *partmap.Range) beginning {
	h := fnv.New64a()
	_, _ = h.Write(rg.Start)
	return beginning{id, h.Sum64()}
}

// smallSince returns the time since when a range has had fewer rows than the minimum, or zero if the range is not
// small. A small range is merged only some time after that. The parameter at identifies the range, and s are its
// counters. For an empty range, which may have been cut in advance, the time begins anew with the first row.
func (b *Balancer) smallSince(at beginning, s *counter.Stats, now time.Time) time.Time {
	// A time may be forgotten, and the merge only comes later then.
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
