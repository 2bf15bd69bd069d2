package counter

import (
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// A Delta is what one client did to one partition since it last said so.
type Delta struct {
	Partition store.Partition
	// Puts and Deletes are acknowledged writes; of the deletes, Markers were
	// written as markers, because the range was moving.
	Puts, Deletes, Markers int64
	// PutBytes are the bytes of keys and values that were put.
	PutBytes int64
	// Above are the puts whose key was above every key seen some moments before.
	Above int64
	// Reads are reads of the partition, pages and single entries alike.
	Reads int64
	// Top is the highest key put so far, at most maxTop bytes of it.
	Top []byte
	// Blind says that there was no memory to sample all keys: Sample is empty.
	Blind bool
	// Sample holds keys that were written.
	Sample Sample
}

// maxTop is how many bytes of the highest key are kept.
const maxTop = 1024

// A Batch is deltas that a backend takes in together or not at all.
type Batch struct {
	// Client and Seq name the batch: a client numbers its batches from 1, and
	// sends the next only when it knows that the one before was taken. So a
	// batch that is told twice counts once, and one that was lost is noticed.
	Client uuid.UUID
	Seq    uint64
	// From and At are between what moments it was recorded, by the client's wall
	// clock: a backlog is no burst.
	From, At time.Time
	Deltas   []Delta
}

// A Hint is what a backend tells a client of a partition, so that it samples no
// more keys than are of use and knows the highest key that others have put.
type Hint struct {
	Partition store.PartitionID
	Below     uint64
	Top       []byte
}
