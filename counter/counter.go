package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Stats are the estimates for one partition: its size, its load, and what the last recount has found.
type Stats struct {
	Partition store.Partition
	// Known means that the estimates are based on an exact count, and that no later writes are known to be missing. If
	// Known is false, Rows is a lower bound.
	Known bool
	// Rows is the number of live entries. Bytes is the size of the keys and values of these entries.
	Rows, Bytes int64
	// AtMost is the number of rows if every put since the last recount was of a new key and
	// no delete removed one.
	AtMost int64
	// Dead is the number of tombstones that reads may have to skip: deletes, which fade within days. Markers is the
	// number of deletion markers that the last recount found.
	Dead, Markers int64
	// Distinct is the number of different keys that were put since the last recount.
	Distinct int64
	// PutsPerS, DeletesPerS and ReadsPerS are requests per second, over about the last minute.
	PutsPerS, DeletesPerS, ReadsPerS float64
	// AppendsPerS is the number per second of appends, which are puts above the highest key so far. AppendShare is the
	// share of appends, 0 to 1, among about the last 64 puts; both are 0 after fewer than 8 puts.
	AppendsPerS, AppendShare float64
	// Spread tells how evenly the newest keys are distributed among all keys, 0 to 1. At 1 the newest keys are spread
	// like all keys. At 0 they lie at one end of the range, or too few keys are known.
	Spread float64
	// GrowthRowsPerS is the growth in rows per second, over about the last hour. It is negative if the partition
	// shrinks.
	GrowthRowsPerS float64
	// Top is the highest key that was put, or its first 1,024 bytes. It is nil if no put was seen.
	Top []byte
	// Asked is a sample of the requests of the last minutes, oldest first. All requests of the same age have the same
	// chance to be in the sample; older ones have a smaller chance. Asked is empty below 10 requests per second.
	Asked []Asked `json:",omitempty"`
	// Recounted is when the last recount began; zero means never. RecountedRows is the number of rows that it found.
	// Fruitless is the number of consecutive recounts after which there was nothing to do.
	Recounted     time.Time
	RecountedRows int64
	Fruitless     int
	// Puts is the number of all puts ever counted. LastPut is when the last of these puts were flushed; zero means
	// never.
	Puts    int64
	LastPut time.Time

	// from and to are hashes of the bounds of the last recount.
	from, to uint64
	taken    Taken
}

// Covers reports whether the estimates hold for exactly the range [start, end) of the partition: true if the last
// recount was of this range. An empty end is plus infinity.
//
// After a split the estimates are for more than the range, because the keys that the partition has lost stay counted;
// then Covers is false. Only a cut above the highest key loses no keys, so the estimates stay valid.
func (s Stats) Covers(start, end []byte) bool {
	if s.Recounted.IsZero() || s.from != hashOf(start) {
		return false
	}
	return s.to == hashOf(end) || len(s.Top) < maxTop && bytes.Compare(s.Top, end) < 0
}

// A Quantum is a run of neighbouring keys in a partition: about Rows rows, from Key up to the Key of the next quantum.
type Quantum struct {
	Key  []byte
	Rows int64
	// Oldest and Newest are the times at which the first and the last of the rows were written, in Unix microseconds; 0
	// means unknown. These times show where a range grows, and in which direction.
	Oldest int64 `json:",omitempty"`
	Newest int64 `json:",omitempty"`
}

// A Source returns estimates of the sizes and loads of partitions, without reading their rows.
type Source interface {
	// Stats returns one Stats per partition, in the order of partitions. It fails with Unavailable or Timeout if the
	// backend can't be reached.
	Stats(ctx context.Context, partitions []store.Partition) ([]Stats, error)
	// Quanta returns an estimate of where the rows of a partition lie: at most 256 quanta in the order of their keys.
	// Their Rows add up to Stats.Rows. The Key of the first quantum is empty, for the start of the range. The result is
	// empty if nothing is known of the partition. Quanta fails like Stats.
	Quanta(ctx context.Context, p store.Partition) ([]Quantum, error)
}

// A Backend merges and keeps the counts of all clients. Its methods are safe for concurrent use, also by several
// processes if the backend is shared. The methods fail with Unavailable or Timeout.
type Backend interface {
	Source
	// Flush applies a batch and returns hints for its partitions. A batch is applied once, even if Flush is called
	// repeatedly with it. After an error the batch may have been applied all the same: the caller must send it again,
	// unchanged, before any later batch of the same client. The backend does not keep b after the call.
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	// Written returns the partitions of the batches that were applied since mark, and the mark for the next call. A
	// partition may be returned twice. With mark 0, and after a restart of the backend, earlier writes are missing:
	// then the caller has to check all partitions first.
	Written(ctx context.Context, mark uint64) (partitions []store.Partition, next uint64, err error)
	// Correct replaces the estimate for p by the result c of a recount.
	Correct(ctx context.Context, p store.Partition, c *Count) error
	// Forget drops the counts of partitions that no longer exist.
	Forget(ctx context.Context, partitions ...store.Partition) error
	// Close releases the resources of the backend. Counts that were flushed stay.
	Close() error
}
