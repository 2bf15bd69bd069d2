package partmap

import "github.com/evenkeel/evenkeel/store"

// Entry is one line of the map: a range's start and where its rows are. The
// range ends where the next entry starts.
type Entry struct {
	// Start is the cut at which the range begins; empty only for the first.
	Start []byte
	// Partition is the home of the range; while it moves, the source.
	Partition store.PartitionID
	// To is the fresh destination while the range moves, else zero.
	To store.PartitionID
	// Batch is the batch of moves that the range takes part in, or last took
	// part in: the epoch at which that batch began; 0 for none. The range's
	// phase is that of the batch in Root.Batches; a batch that is no longer
	// there is over, so that the end of a sweep rewrites no segment.
	Batch uint64
	// PinUntil (Unix seconds; 0 for none) is a promise to leave the cut at
	// Start alone until then.
	PinUntil int64
	// Created (Unix seconds) is when the partition was made.
	Created int64
}

// Batch is the state of moves that share their swaps and waits.
type Batch struct {
	// ID is the epoch whose swap began the batch.
	ID uint64
	// Phase of all its ranges. Settled means that the moves are done and the
	// sweep of their markers is pending.
	Phase Phase
	// Ranges is how many entries of the map carry the batch's ID. It shows a
	// mover that it has found all of them.
	Ranges uint64
}

// Range is an entry seen in its map: with its end and its phase. Its byte
// slices share the map's memory and are read-only.
type Range struct {
	Entry
	// End is exclusive; empty is plus infinity.
	End   []byte
	Phase Phase
	// SweepPending: the last move left markers that are not swept yet.
	SweepPending bool
}

// Contains reports whether key lies within the range.
func (r *Range) Contains(key []byte) bool {
	return string(key) >= string(r.Start) && (len(r.End) == 0 || string(key) < string(r.End))
}

// WriteTo is the partition that puts and deletes go to.
func (r *Range) WriteTo() store.PartitionID {
	if r.Phase.Rules().WriteTo == Destination {
		return r.To
	}
	return r.Partition
}
