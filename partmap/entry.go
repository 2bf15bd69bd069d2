package partmap

import "github.com/evenkeel/evenkeel/store"

// Entry is one line of the map: the start of a range and its partition. The range ends where
// the next entry starts.
type Entry struct {
	// Start is the cut at which the range begins; empty only for the first.
	Start []byte
	// Partition is the home of the range; the source while it moves.
	Partition store.PartitionID
	// To is the fresh destination while the range moves, else zero.
	To store.PartitionID
	// Batch is the ID of the present or last batch of moves of the range; 0 for none. The
	// phase of the range is that of the batch in Root.Batches. A batch that is not there is
	// over: so the end of a sweep rewrites no segment.
	Batch uint64
	// PinUntil (Unix seconds; 0 for none) is until when the cut at Start must stay.
	PinUntil int64
	// Created (Unix seconds) is when the partition was made.
	Created int64
}

// Batch is the state of moves that share their swaps and waits.
type Batch struct {
	// ID is the epoch whose swap began the batch.
	ID uint64
	// Phase of all its ranges. Settled means that the moves are done and the sweep of
	// their markers is pending.
	Phase Phase
	// Ranges is the number of entries with the batch's ID, by which a mover checks that it
	// has found all.
	Ranges uint64
}

// Range is an entry with its end and its phase. Its byte slices share memory with the map
// and are read-only.
type Range struct {
	Entry
	// End is exclusive; empty is plus infinity.
	End   []byte
	Phase Phase
	// SweepPending means that the last move left markers that are not swept yet.
	SweepPending bool
}

// Contains reports whether key lies within the range.
func (r *Range) Contains(key []byte) bool {
	return string(key) >= string(r.Start) && (len(r.End) == 0 || string(key) < string(r.End))
}

// WriteTo returns the partition of puts and deletes.
func (r *Range) WriteTo() store.PartitionID {
	if r.Phase.Rules().WriteTo == Destination {
		return r.To
	}
	return r.Partition
}
