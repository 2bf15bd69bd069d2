package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Stats is what is known of one partition. The numbers are estimates; see
// Known.
type Stats struct {
	Partition store.Partition
	// Known says that the estimates build on an exact count, and that no writes
	// since then are known to be missing. Where it is false, Rows are at least
	// what was seen, and only a recount tells.
	Known bool
	// Rows are live entries, Bytes those of their keys and values.
	Rows, Bytes int64
	// AtMost is how many rows there are if every put since the last recount was of a
	// new key and no delete hit one.
	AtMost int64
	// Dead are tombstones that reads may still have to step over: deletes, fading
	// within days. Markers are what the last recount saw of them.
	Dead, Markers int64
	// Distinct are the different keys put since the last recount.
	Distinct int64
	// Rates per second, over about the last minute.
	PutsPerS, DeletesPerS, ReadsPerS float64
	// Appends are puts above the highest key so far. AppendShare is their share of the
	// last 64 puts or so, 0 to 1; 0 also where there were fewer than 8.
	AppendsPerS, AppendShare float64
	// Spread says how evenly the newest keys lie among all: 1 is like all keys, 0 is
	// all at one end, and also where too little is known.
	Spread float64
	// GrowthRowsPerS are rows gained per second (negative: lost), over about the
	// last hour.
	GrowthRowsPerS float64
	// Top is the highest key put, or its first 1,024 bytes; nil if none was seen.
	Top []byte
	// Recounted is when the last recount began (zero: never), RecountedRows what
	// it found. Fruitless are the recounts in a row that found nothing to do.
	Recounted     time.Time
	RecountedRows int64
	Fruitless     int
	// Puts are all puts that were counted, ever; LastPut is when the last of them were
	// told (zero: never).
	Puts    int64
	LastPut time.Time

	// The bounds of the last recount, hashed.
	from, to uint64
}

// Covers reports whether the last recount was one of the range [start, end) of its
// partition (empty end: plus infinity), so that the estimates are of that range: a
// partition loses keys when its range is cut, and the counts do not learn of it. A
// cut above the highest key takes nothing away.
func (s Stats) Covers(start, end []byte) bool {
	if s.Recounted.IsZero() || s.from != hashOf(start) {
		return false
	}
	return s.to == hashOf(end) || len(s.Top) < maxTop && bytes.Compare(s.Top, end) < 0
}

// A Quantum is a sampled run of keys: Rows rows from Key up to the next one's.
type Quantum struct {
	Key  []byte
	Rows int64
}

// A Source says what is known of partitions.
type Source interface {
	// Stats returns one Stats per partition, in their order. What nothing is
	// known of is not Known. It fails with Unavailable or Timeout where the
	// backend can't be reached.
	Stats(ctx context.Context, partitions []store.Partition) ([]Stats, error)
	// Quanta returns where the rows of a partition lie, as far as its sample
	// tells, in the order of their keys: up to 256, which add up to Stats.Rows. The
	// first key is empty; it stands for the range's start. None, if nothing is
	// known. It fails like Stats.
	Quanta(ctx context.Context, p store.Partition) ([]Quantum, error)
}

// A Backend keeps what all clients say. Its methods are safe for concurrent use,
// also by several processes where it is shared. They fail with Unavailable or
// Timeout; whoever records, goes on without it.
type Backend interface {
	Source
	// Flush takes in a batch, once, however often it is called with it, and
	// returns hints for its partitions. If it fails, the batch may have been taken
	// in all the same: it is to be sent again, unchanged, before a later one. The
	// batch is not kept.
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	// Written returns the partitions of which batches told that were taken in since
	// mark, and the mark to go on from. With mark 0, and after a restart, it returns
	// those that it remembers: what was told before is missing, so a caller looks at
	// everything first. Some may be returned twice.
	Written(ctx context.Context, mark uint64) (partitions []store.Partition, next uint64, err error)
	// Correct takes in the result of a recount.
	Correct(ctx context.Context, p store.Partition, c *Count) error
	// Forget drops what is known of partitions that are no more.
	Forget(ctx context.Context, partitions ...store.Partition) error
	// Close lets go of what the backend holds. What was flushed stays.
	Close() error
}
