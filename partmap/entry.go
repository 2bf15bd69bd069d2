package partmap

import "github.com/evenkeel/evenkeel/store"

// Entry is a line of a bucket's map: the start of a range of keys, and the partition in which the rows of the range
// lie. The range ends where the next entry starts.
type Entry struct {
	// Start is the first key of the range. Only the first entry of a map has an empty Start.
	Start []byte
	// Partition is the partition in which the rows of the range lie. While the range moves, Partition is the source of
	// the move.
	Partition store.PartitionID
	// To is the fresh partition to which the rows of the range move. It is zero while the range does not move.
	To store.PartitionID
	// Batch is the ID of the batch, a group of moves, in which the range moves now or moved last. It is 0 if the range
	// has never moved. The phase of the move is that of the batch in Root.Batches. If Root.Batches lacks the batch, the
	// batch is over: so entries need not be rewritten when a batch ends.
	Batch uint64
	// PinUntil is the time (Unix seconds) until which no merge may join the range with the range before it. With 0 a
	// merge may join them at any time.
	PinUntil int64
	// Created is the time (Unix seconds) from which on Partition has held the range.
	Created int64
}

// Batch is a group of moves of ranges that go from phase to phase together. For each phase the whole batch needs only
// one swap of the map's root, and one wait for older leases.
type Batch struct {
	// ID is the epoch of the root that began the batch of moves.
	ID uint64
	// Phase is the phase in which all moves of the batch are. Settled means that the moves are done, but that the
	// markers (a kind of tombstones) that they have left are not removed yet.
	Phase Phase
	// Ranges is the number of entries of the map with the ID of this batch. A mover compares Ranges with the number of
	// entries that it has found, so that it misses none.
	Ranges uint64
}

// Range is an entry of a bucket's map, which says where an interval of keys lies, with two additions: the end of the
// interval, and the phase of its move. The byte slices of a Range share memory with the map and are read-only.
type Range struct {
	Entry
	// End is the first key above the range. An empty End is plus infinity.
	End   []byte
	Phase Phase
	// SweepPending means that the last move of the range has left markers, a kind of tombstones, that are not removed
	// yet.
	SweepPending bool
}

// Contains reports whether key lies within the range: whether key is at or above Start and below End.
func (r *Range) Contains(key []byte) bool {
	return string(key) >= string(r.Start) && (len(r.End) == 0 || string(key) < string(r.End))
}

// WriteTo returns the partition to which clients write rows of the range at present. While the range moves, the phase
// of the move decides whether that is the source or the destination.
func (r *Range) WriteTo() store.PartitionID {
	if r.Phase.Rules().WriteDestination {
		return r.To
	}
	return r.Partition
}
