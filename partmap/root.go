package partmap

import (
	"cmp"

	"github.com/evenkeel/evenkeel/store"
)

// State is the state of a bucket.
type State uint8

const (
	Open State = iota + 1
	// Closing: the bucket is being deleted and checked to be empty. Clients get no lease.
	Closing
	// Deleted is final.
	Deleted
)

var stateNames = map[State]string{Open: "open", Closing: "closing", Deleted: "deleted"}

func (s State) String() string { return cmp.Or(stateNames[s], "unknown state") }

// Root is the root of the map of a bucket at one epoch: the entries of a small map, or the
// topmost nodes of a larger one. It is immutable; a change makes a new Root (see Edit).
type Root struct {
	Bucket store.BucketID
	// Epoch and Token repeat the version of the register, to detect torn reads.
	Epoch uint64
	Token store.Token
	State State
	// Clock is the number of the map clock that changes of this map bump.
	Clock uint32
	// ChangedAt (Unix microseconds, wall clock of the process that swapped) is when this
	// epoch began. It is for reports, and for finding abandoned closing buckets.
	ChangedAt int64
	// Ranges is the number of entries of the map.
	Ranges uint64
	// Batches are the moves in flight (the overlay), ordered by ID, at most MaxBatches.
	// Entries name their batch, and the root has its phase, so that a phase change rewrites
	// the root only, whatever the number of ranges. The slowest copy delays its batch.
	Batches []Batch
	// Height is 0 where Entries holds the whole map, 1 where Children are
	// segments, 2 where they are index nodes over segments, and so on.
	Height   uint8
	Entries  []Entry
	Children []Child
	// Settings are what layers above keep with the bucket, at most MaxSettingsBytes. They are
	// in the root so that a lease covers them: a change waits for older leases like a move.
	// Immutable. Programs that do not know of settings refuse a root that has some.
	Settings []byte
}

// Limits of a root.
const (
	// MaxRootBytes is the largest encoded root, without its overlay of batches and its
	// settings. A map that does not fit gets another level.
	MaxRootBytes = 4096
	// MaxSettingsBytes bounds the settings of a bucket. All who have its map hold them, and
	// each change of the root writes them again. Older programs refuse a root that has more than
	// 255 bytes of them.
	MaxSettingsBytes = 16 << 10
	// MaxBatches bounds the overlay: the batches of moves in flight or with a
	// sweep pending, in one bucket. Each takes at most 26 bytes of the root.
	MaxBatches = 64
)

// Child is a reference to a node from the one above it.
type Child struct {
	// Start is the lowest key below the node; empty for the first of all.
	Start []byte
	Node  store.NodeID
}

// Version returns the version of the root's register.
func (r *Root) Version() store.Version { return store.Version{Epoch: r.Epoch, Token: r.Token} }

// BatchOf returns the phase of a batch and whether its sweep is pending. A batch that is not
// in the root is over.
func (r *Root) BatchOf(id uint64) (p Phase, sweepPending bool) {
	if id == 0 {
		return Settled, false
	}
	for i := range r.Batches {
		if b := &r.Batches[i]; b.ID == id {
			return b.Phase, b.Phase == Settled
		}
	}
	return Settled, false
}

// Range returns the range of an entry of this map; an empty end is plus infinity.
func (r *Root) Range(e Entry, end []byte) Range {
	p, sweep := r.BatchOf(e.Batch)
	return Range{Entry: e, End: end, Phase: p, SweepPending: sweep}
}

// Cuts returns the starts of Entries or Children for lookups, in new memory.
func (r *Root) Cuts() *Cuts {
	n, at := len(r.Children), func(i int) []byte { return r.Children[i].Start }
	if r.Height == 0 {
		n, at = len(r.Entries), func(i int) []byte { return r.Entries[i].Start }
	}
	return new(newCuts(n, at))
}
