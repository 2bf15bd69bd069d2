package counter

import (
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// A Delta is what one client did to one partition since its last flush.
type Delta struct {
	Partition store.Partition
	// Puts and Deletes are acknowledged writes. Markers are the deletes that wrote markers,
	// because the range was moving.
	Puts, Deletes, Markers int64
	// PutBytes are the bytes of keys and values that were put.
	PutBytes int64
	// Above are the puts with a key above every key seen some moments before.
	Above int64
	// Reads are reads of the partition, of pages and single entries.
	Reads int64
	// Top is the highest key put so far, at most maxTop bytes of it.
	Top []byte
	// Blind means that there was no memory to sample all keys: Sample is empty.
	Blind bool
	// Sample holds keys that were written.
	Sample Sample
	// Asked are some keys that were asked for, of as many requests each; none of a quiet partition.
	Asked [][]byte
}

// maxTop is the number of bytes kept of the highest key.
const maxTop = 1024

// A Batch has deltas that a backend applies together or not at all.
type Batch struct {
	// Client and Seq identify the batch: a client numbers its batches from 1 (those of each
	// group, see Grouper), and sends the next one only once the one before was applied. So a
	// repeated batch counts once, and a lost one is detected.
	Client uuid.UUID
	Seq    uint64
	// From and At bound the time in which it was recorded, by the client's wall clock.
	From, At time.Time
	// Before are the partitions of the client's previous batch: if that is lost, it is known
	// whose counts are wrong.
	Before []store.PartitionID
	Deltas []Delta
}

// A Hint is information for clients about a partition: Below is the limit of its sample, so
// that they sample no more keys than are useful, and Top the highest key of all clients.
type Hint struct {
	Partition store.PartitionID
	Below     uint64
	Top       []byte
}
