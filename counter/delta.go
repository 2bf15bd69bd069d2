package counter

import (
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A Delta is what one client has counted of one partition since its last flush: the numbers of puts, deletes and reads,
// and a sample of the keys.
type Delta struct {
	Partition store.Partition
	// Puts and Deletes are numbers of acknowledged writes. Markers is the number of those deletes that wrote deletion
	// markers, because their rows were moving to another partition.
	Puts, Deletes, Markers int64
	// PutBytes is the size in bytes of the keys and values that were put.
	PutBytes int64
	// Above is the number of appends: puts with a key above every key that was put until some moments before.
	Above int64
	// Reads is the number of reads of the partition, of pages and of single entries.
	Reads int64
	// Top is the highest key that was put so far, or its first 1,024 bytes.
	Top []byte
	// Blind is true if there was no memory to sample all keys. Then Sample is empty.
	Blind bool
	// Sample is a sample of the keys that were put or deleted, with the time of the last write of each key.
	Sample Sample
	// Asked has the keys of some requests, as a sample. Each key stands for an equal number of requests. Asked is empty
	// for a quiet partition.
	Asked [][]byte
}

// A Sample is a set of keys of a partition, with the time of the last write of each key. A Recorder or a recount has
// drawn the keys. Only packages of this module can read them. A Backend passes a Sample on unchanged, or stores it
// within an encoded Batch. The zero Sample is empty.
type Sample struct{ keys keysample.Sample }

// newSample returns an empty Sample, into which keys can be written.
func newSample() Sample { return Sample{keysample.New()} }

// A Batch is the counts of one client for several partitions (one Delta per partition), which a backend applies
// together or not at all.
type Batch struct {
	// Client and Seq identify the batch. A client numbers its batches from 1, separately for each group of buckets (see
	// Grouper). It sends a batch only after the previous batch was applied. So a backend recognises a batch that comes
	// twice, and detects that a batch is lost.
	Client uuid.UUID
	Seq    uint64
	// From and At are the start and the end of the time in which the counts were recorded, by the client's wall clock.
	From, At time.Time
	// Before lists the partitions of the client's previous batch of counts. If the previous batch is lost, the counts
	// of these partitions are too low.
	Before []store.PartitionID
	Deltas []Delta
}

// A Hint is what the backend tells clients about a partition, so that they record only what the backend needs. Clients
// need to sample only keys with a hash lower than Below. Top is the highest key that any client has put, or the first
// 1,024 bytes of this key.
type Hint struct {
	Partition store.PartitionID
	Below     uint64
	Top       []byte
}

// A Count is the result of a recount of one partition: the exact number of its rows, their size, and a sample of their
// keys.
type Count struct {
	// Started is the time at which the recount began, by the wall clock, in whole microseconds. Took is the duration of
	// the recount, by the monotonic clock.
	Started time.Time
	Took    time.Duration
	// Start and End are the bounds of the recount. An empty End is plus infinity.
	Start, End []byte
	// Rows is the number of live entries, Bytes the size of their keys and values. Markers is the number of deletion
	// markers among the rows.
	Rows, Bytes, Markers int64
	// Quanta are exact: intervals of keys with their numbers of rows and the times of these rows. The first Key is
	// empty. Each other Key is the shortest key that separates the rows below from those above, and good for a cut.
	// Some quanta begin where old rows are next to new rows.
	Quanta []Quantum
	// Top is the highest key that the recount saw, or its first 1,024 bytes.
	Top []byte
	// Fine is true if the result of the recount did not call for a change, so that the next recount may wait longer.
	Fine bool
	// Sample is a sample of the keys that were read. The zero Sample stands for an empty sample.
	Sample Sample

	// Counted is zero for the result of a recount. A Count may also be a size that was stored beside the rows, to
	// restore counts that were lost. The size descends from an earlier recount: Counted is the start of that recount,
	// and From and To are hashes of its bounds, as in Stats.
	Counted  time.Time
	From, To uint64
}
