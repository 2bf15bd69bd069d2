package counter

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// Stats are the estimates for one partition: its size in rows and bytes, and its load in requests per second. Stats
// also have the result of the last recount, which is an exact count of the partition's rows.
type Stats struct {
	Partition store.Partition
	// Known means that the estimates are based on an exact count, and that no later writes are known to be missing. If
	// Known is false, the partition may have more rows than Rows says.
	Known bool
	// Rows is the number of live entries in the partition. Bytes is the size of the keys and values of these entries.
	Rows, Bytes int64
	// AtMost is an upper bound of Rows. It would be the number of rows if every put since the last recount was of a new
	// key and no delete removed a row.
	AtMost int64
	// Dead is the number of tombstones that reads may have to skip, which are deletes of the last days. Markers is the
	// number of deletion markers that the last recount found.
	Dead, Markers int64
	// Distinct is the number of different keys that were put since the last recount.
	Distinct int64
	// PutsPerS, DeletesPerS and ReadsPerS are requests per second, over about the last minute.
	PutsPerS, DeletesPerS, ReadsPerS float64
	// AppendsPerS is the number per second of appends, which are puts above the highest key so far. AppendShare is the
	// fraction of appends, 0 to 1, among about the last 64 puts. Both are 0 before 8 puts have been counted.
	AppendsPerS, AppendShare float64
	// Spread tells how evenly the newest keys are distributed among all keys, 0 to 1. At 1 the newest keys are
	// distributed like all keys. At 0 the newest keys are together at one end of the partition, or too few keys are
	// known.
	Spread float64
	// GrowthRowsPerS is the growth in rows per second, over about the last hour. It is negative if the partition
	// shrinks.
	GrowthRowsPerS float64
	// Top is the highest key that was put, or its first 1,024 bytes. It is nil if no put was seen.
	Top []byte
	// Asked is a sample of the requests of the last minutes, oldest first. All requests of the same age have the same
	// chance to be in the sample; older requests have a smaller chance. Asked is empty below 10 requests per second.
	Asked []Asked `json:",omitempty"`
	// Recounted is the time when the last recount began; zero means never. RecountedRows is the number of rows that the
	// recount found. Fruitless is the number of consecutive recounts whose results did not call for a change.
	Recounted     time.Time
	RecountedRows int64
	Fruitless     int
	// Puts is the number of all puts ever counted. LastPut is the time of the last batch of counts with a put; zero
	// means that no put was counted.
	Puts    int64
	LastPut time.Time

	// From and To are hashes of the bounds of the last recount: the xxhash64 of its start key and of its end key. A
	// hash of 0 is replaced by 1.
	From, To uint64 `json:"-"`
	// WritesTaken and ReadsTaken are the numbers of writes and reads up to the moment for which the estimates hold,
	// weighted by age: a request counts 1 when it is new, and 1/e after a minute.
	WritesTaken, ReadsTaken float32 `json:"-"`
}

// Covers reports whether the estimates are for exactly the interval of keys from start to end (exclusive), because the
// last recount was of this interval. An empty end means plus infinity.
//
// After a split of the partition, Covers is false: the keys that the partition has lost stay counted, so the estimates
// are too high. If the partition was cut above its highest key, it has lost no keys, and Covers stays true.
func (s Stats) Covers(start, end []byte) bool {
	if s.Recounted.IsZero() || s.From != keysample.Hash(start) {
		return false
	}
	return s.To == keysample.Hash(end) || len(s.Top) < keysample.MaxTop && bytes.Compare(s.Top, end) < 0
}

// A Quantum is an interval of neighbouring keys in a partition with about Rows rows. It begins at Key and ends before
// the Key of the next Quantum. A list of them shows how the rows are distributed, and where a partition can be cut.
type Quantum struct {
	Key  []byte
	Rows int64
	// Oldest and Newest are the times at which the first and the last of the rows were written, in Unix microseconds; 0
	// means unknown. These times show where a partition grows, and in which direction.
	Oldest int64 `json:",omitempty"`
	Newest int64 `json:",omitempty"`
}

// A Source returns estimates of the sizes and loads of partitions, from counts of writes, without reading the rows.
type Source interface {
	// Stats returns the estimates for the given partitions, in the same order. It fails with Unavailable or Timeout if
	// the backend can't be reached.
	Stats(ctx context.Context, partitions []store.Partition) ([]Stats, error)
	// Quanta estimates how the rows of the partition p are distributed: at most 256 intervals of keys, in the order of
	// the keys, whose Rows add up to Stats.Rows. The Key of the first Quantum is empty. The result is empty if nothing
	// is known of the partition. Quanta fails like Stats.
	Quanta(ctx context.Context, p store.Partition) ([]Quantum, error)
}

// A Backend merges and keeps the counts of rows and requests that all clients send. Its methods are safe for concurrent
// use, also by several processes if the backend is shared, such as Redis. The methods fail with Unavailable or Timeout.
type Backend interface {
	Source
	// Flush applies a batch of counts, and returns one Hint (which keys to sample) for each of its partitions. A batch
	// is applied once, even if Flush is called repeatedly with it. After an error the batch may have been applied all
	// the same: the caller must send the batch again, unchanged, before any later batch of the same client. The backend
	// does not keep b after the call.
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	// Written returns the partitions that were written to since an earlier call, so that the caller knows which
	// partitions to check. mark is the result next of the earlier call. A partition may be returned twice. With mark 0,
	// and after a restart of the backend, earlier writes are missing: then the caller has to check all partitions
	// first.
	Written(ctx context.Context, mark uint64) (partitions []store.Partition, next uint64, err error)
	// Correct replaces the estimate for the partition p by the result c of a recount, which is an exact count of its
	// rows.
	Correct(ctx context.Context, p store.Partition, c *Count) error
	// Forget deletes the counts of partitions that no longer exist.
	Forget(ctx context.Context, partitions ...store.Partition) error
	// Close releases the resources of the backend, such as connections. Counts that were flushed stay.
	Close() error
}
