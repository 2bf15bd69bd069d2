package partmap

import "github.com/evenkeel/evenkeel/store"

// State is whether a bucket takes operations.
type State uint8

const (
	Open State = iota + 1
	// Closing: somebody deletes the bucket and checks that it is empty. Clients
	// take no lease on it.
	Closing
	// Deleted is final.
	Deleted
)

func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case Closing:
		return "closing"
	case Deleted:
		return "deleted"
	}
	return "unknown state"
}

// Root is the map of a bucket at one epoch, as far as its register holds it: a
// small bucket's entries themselves, or the topmost nodes of a larger one. It
// is immutable once decoded; a change makes a new Root (see Edit).
type Root struct {
	Bucket store.BucketID
	// Epoch and Token repeat the register's version, so that a torn read shows.
	Epoch uint64
	Token store.Token
	State State
	// Clock is the number of the map clock that changes of this map bump.
	Clock uint32
	// ChangedAt (Unix microseconds, the swapper's wall clock) tells when this
	// epoch began; for people, and for finding a closing bucket left behind.
	ChangedAt int64
	// Ranges is how many entries the map has.
	Ranges uint64
	// Batches are the moves in flight (the overlay), ordered by ID: at most
	// MaxBatches. Entries name their batch, and the root has its phase, so that a
	// phase change rewrites the root alone, however many ranges take part. A slow
	// copy holds up its batch.
	Batches []Batch
	// Height is 0 where Entries holds the whole map, 1 where Children are
	// segments, 2 where they are index nodes over segments, and so on.
	Height   uint8
	Entries  []Entry
	Children []Child
}

// Limits of a root.
const (
	// MaxRootBytes is the largest encoded root, its overlay of batches apart. A
	// map that does not fit pushes a level down.
	MaxRootBytes = 4096
	// MaxBatches bounds the overlay: the batches of moves in flight or with a
	// sweep pending, in one bucket. Each takes at most 26 bytes of the root.
	MaxBatches = 64
)

// Child refers to a node from the one above it.
type Child struct {
	// Start is the lowest key below the node; empty for the first of all.
	Start []byte
	Node  store.NodeID
}

// Version is the register version that the root belongs to.
func (r *Root) Version() store.Version { return store.Version{Epoch: r.Epoch, Token: r.Token} }

// BatchOf returns the phase of a batch and whether its sweep is pending. A batch
// that the root does not name is over.
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

// Range sees an entry of this map with its end (empty: plus infinity).
func (r *Root) Range(e Entry, end []byte) Range {
	p, sweep := r.BatchOf(e.Batch)
	return Range{Entry: e, End: end, Phase: p, SweepPending: sweep}
}

// Cuts returns the starts of Entries or Children, made for lookup, in new memory.
func (r *Root) Cuts() *Cuts {
	n, at := len(r.Children), func(i int) []byte { return r.Children[i].Start }
	if r.Height == 0 {
		n, at = len(r.Entries), func(i int) []byte { return r.Entries[i].Start }
	}
	c := newCuts(n, at)
	return &c
}
