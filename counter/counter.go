package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Stats are the estimates for one partition.
type Stats struct {
	Partition store.Partition
	// Known means that the estimates are based on an exact count, and that no writes since
	// then are known to be missing. Otherwise Rows is a lower bound.
	Known bool
	// Rows are live entries, Bytes those of their keys and values.
	Rows, Bytes int64
	// AtMost is the number of rows if every put since the last recount was of a new key and
	// no delete removed one.
	AtMost int64
	// Dead are tombstones that reads may have to skip: deletes, which fade within days.
	// Markers are deletion markers found by the last recount.
	Dead, Markers int64
	// Distinct are the different keys put since the last recount.
	Distinct int64
	// Rates per second, over about the last minute.
	PutsPerS, DeletesPerS, ReadsPerS float64
	// Appends are puts above the highest key so far. AppendShare is their share of the
	// last 64 puts or so, 0 to 1; 0 also where there were fewer than 8.
	AppendsPerS, AppendShare float64
	// Spread is how evenly the newest keys lie among all: 1 is like all keys; 0 is all at
	// one end, or too little is known.
	Spread float64
	// GrowthRowsPerS is the growth in rows per second over about the last hour; negative if
	// the partition shrinks.
	GrowthRowsPerS float64
	// Top is the highest key put, or its first 1,024 bytes; nil if none was seen.
	Top []byte
	// Asked are requests of the last minutes, oldest first: a sample in which each has the same chance, but for its
	// age. There are none where less than 10 per second are made.
	Asked []Asked `json:",omitempty"`
	// Recounted is when the last recount began (zero: never), RecountedRows its result.
	// Fruitless is the number of consecutive recounts after which nothing was done.
	Recounted     time.Time
	RecountedRows int64
	Fruitless     int
	// Puts are all puts ever counted; LastPut is when the last of them were flushed (zero:
	// never).
	Puts    int64
	LastPut time.Time

	// The bounds of the last recount, hashed.
	from, to uint64
	taken    Taken
}

// Covers reports whether the last recount was of the range [start, end) of its partition
// (empty end: plus infinity), so that the estimates are for that range: when a range is
// split its partition loses keys that stay counted. A cut above the highest key changes
// nothing.
func (s Stats) Covers(start, end []byte) bool {
	if s.Recounted.IsZero() || s.from != hashOf(start) {
		return false
	}
	return s.to == hashOf(end) || len(s.Top) < maxTop && bytes.Compare(s.Top, end) < 0
}

// A Quantum is a run of keys: about Rows rows from Key up to the Key of the next one.
type Quantum struct {
	Key  []byte
	Rows int64
	// Oldest and Newest are when the first and the last of its rows were written (Unix microseconds); 0: unknown.
	// They show where a range grows, and in which direction.
	Oldest int64 `json:",omitempty"`
	Newest int64 `json:",omitempty"`
}

// A Source returns estimates of partitions.
type Source interface {
	// Stats returns one Stats per partition, in order. It fails with Unavailable or Timeout
	// where the backend can't be reached.
	Stats(ctx context.Context, partitions []store.Partition) ([]Stats, error)
	// Quanta estimates where the rows of a partition lie: up to 256 quanta in the order of
	// their keys, which add up to Stats.Rows. The first key is empty, for the start of the
	// range. There are none if nothing is known. It fails like Stats.
	Quanta(ctx context.Context, p store.Partition) ([]Quantum, error)
}

// A Backend merges and keeps the counts of all clients. Its methods are safe for concurrent
// use, also by several processes where it is shared. They fail with Unavailable or Timeout.
type Backend interface {
	Source
	// Flush applies a batch, once, even if it is called repeatedly with it, and returns
	// hints for its partitions. If it fails the batch may have been applied: send it again,
	// unchanged, before a later one. The batch is not kept.
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	// Written returns the partitions of batches that were applied since mark, and the next
	// mark. It may return one twice. With mark 0, and after a restart, earlier writes are
	// missing, so that a caller has to look at all partitions first.
	Written(ctx context.Context, mark uint64) (partitions []store.Partition, next uint64, err error)
	// Correct applies the result of a recount.
	Correct(ctx context.Context, p store.Partition, c *Count) error
	// Forget drops the counts of partitions that do not exist any more.
	Forget(ctx context.Context, partitions ...store.Partition) error
	// Close releases the resources of the backend. What was flushed stays.
	Close() error
}
