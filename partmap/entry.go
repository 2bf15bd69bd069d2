package partmap

import "github.com/evenkeel/evenkeel/store"

// Entry is one line of the map of a bucket. It has the start of a range, and the partition that holds the
// range. The range ends where the next entry starts.
type Entry struct {
	// Start is the cut at which the range begins. Only the first entry of a map has an empty Start.
	Start []byte
	// Partition is the partition that holds the range. While the range moves, Partition is the source of the
	// move.
	Partition store.PartitionID
	// To is the fresh partition to which the range moves; zero while the range does not move.
	To store.PartitionID
	// Batch is the ID of the batch in which the range moves now or moved last; 0 if there was no move. The
	// phase of the range is the phase of that batch in Root.Batches. If Root.Batches lacks the batch, the batch
	// is over: so the end of a sweep rewrites the root, and no segment.
	Batch uint64
	// PinUntil is the time (Unix seconds) until which no merge may remove the cut at Start; 0 if the cut is not
	// pinned.
	PinUntil int64
	// Created is the time (Unix seconds) at which Partition became the home of the range.
	Created int64
}

// Batch is a group of moves of ranges that go from phase to phase together. One swap of the root, and one wait
// for older leases, then serves all moves of the batch.
type Batch struct {
	// ID is the epoch of the root that began the batch.
	ID uint64
	// Phase is the phase of all ranges of the batch. Settled means that the moves are done, and that the sweep,
	// which removes the markers of the moves, is pending.
	Phase Phase
	// Ranges is the number of entries of the map with this batch's ID. A mover compares Ranges with the number
	// of entries found, so that the mover misses none.
	Ranges uint64
}

// Range is an entry of the map of a bucket, with two things added: the end of the range, and the phase of its
// move. The byte slices of a Range share memory with the map and are read-only.
type Range struct {
	Entry
	// End is the first key above the range; an empty End is plus infinity.
	End   []byte
	Phase Phase
	// SweepPending means that the last move of the range has left markers that are not swept yet.
	SweepPending bool
}

// Contains reports whether key lies within the range.
func (r *Range) Contains(key []byte) bool {
	return string(key) >= string(r.Start) && (len(r.End) == 0 || string(key) < string(r.End))
}

// WriteTo returns the partition to which clients now write rows of the range. If the range moves, that depends
// on the phase of the move.
func (r *Range) WriteTo() store.PartitionID {
	if r.Phase.Rules().WriteTo == Destination {
		return r.To
	}
	return r.Partition
}
