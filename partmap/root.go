package partmap

import (
	"cmp"

	"github.com/evenkeel/evenkeel/store"
)

// State is the state of a bucket.
type State uint8

const (
	// Open: clients read and write the bucket.
	Open State = iota + 1
	// Closing: the bucket is being deleted, and is checked to be empty. Clients get no lease.
	Closing
	// Deleted: the bucket is gone. No other state follows.
	Deleted
)

var stateNames = map[State]string{Open: "open", Closing: "closing", Deleted: "deleted"}

func (s State) String() string { return cmp.Or(stateNames[s], "unknown state") }

// Root is the root of the map of a bucket at one epoch. The root of a small map holds the entries of all
// ranges. The root of a larger map names the topmost nodes. A Root is immutable: each change of the map makes a
// new Root (see Edit).
type Root struct {
	Bucket store.BucketID
	// Epoch and Token repeat the version of the root's register. A reader compares both, to detect a torn read.
	Epoch uint64
	Token store.Token
	State State
	// Clock is the number of the map clock that each change of this map bumps.
	Clock uint32
	// ChangedAt (Unix microseconds) is when this epoch began, by the wall clock of the process that swapped the
	// root. Only reports, and the search for buckets whose deletion was abandoned, use ChangedAt.
	ChangedAt int64
	// Ranges is the number of entries of the map.
	Ranges uint64
	// Batches (the overlay) are the batches of moves that are in flight or not yet swept, ordered by ID, at
	// most MaxBatches. An entry names its batch, and only the root has the phase of the batch. So a phase
	// change rewrites only the root, whatever the number of ranges. The price: all moves of a batch wait for
	// the slowest copy.
	Batches []Batch
	// Height is the number of levels of nodes below the root. With Height 0, Entries holds the whole map. With
	// Height 1, Children are segments; with Height 2, Children are index nodes over segments, and so on.
	Height   uint8
	Entries  []Entry
	Children []Child
	// Settings are bytes that higher layers keep with the bucket, at most MaxSettingsBytes. They are in the
	// root so that a lease covers them: a change of the settings waits for older leases, as a move does. The
	// slice is immutable. Programs that do not know of settings refuse a root that has some.
	Settings []byte
}

// Limits of an encoded root.
const (
	// MaxRootBytes is the largest size of an encoded root in bytes, without its batches and its settings. A map
	// whose root would be larger gets another level of nodes.
	MaxRootBytes = 4096
	// MaxSettingsBytes is the largest size of the settings of a bucket, in bytes. Every process that has the
	// bucket's map holds the settings in memory, and each change of the root writes them again. Older programs
	// refuse a root with more than 255 bytes of settings.
	MaxSettingsBytes = 16 << 10
	// MaxBatches bounds the batches in the root of one bucket, in flight or with a sweep pending. A batch takes
	// at most 26 bytes of the root.
	MaxBatches = 64
)

// Child is a reference to a node of the map. The root and each index node hold such references to the nodes
// directly below them.
type Child struct {
	// Start is the lowest key of the ranges below the node. Only the first child of the whole level has an
	// empty Start.
	Start []byte
	Node  store.NodeID
}

// Version returns the version at which the root is stored: the epoch and the token of the root. A swap of the
// root names the version that it replaces.
func (r *Root) Version() store.Version { return store.Version{Epoch: r.Epoch, Token: r.Token} }

// BatchOf returns the phase of the batch of moves with this id. sweepPending is true if the moves are done, but
// have left markers that are not removed yet. A batch that the root does not list is over: its phase is
// Settled, and sweepPending is false.
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

// Range returns the range of the entry e, which is an entry of this map. end is the start of the next entry; an
// empty end is plus infinity.
func (r *Root) Range(e Entry, end []byte) Range {
	p, sweep := r.BatchOf(e.Batch)
	return Range{Entry: e, End: end, Phase: p, SweepPending: sweep}
}

// Cuts returns the starts of what the root lists, in new memory, for lookups: of its Entries in a small map
// (height 0), else of its Children, the nodes below the root.
func (r *Root) Cuts() *Cuts {
	n, at := len(r.Children), func(i int) []byte { return r.Children[i].Start }
	if r.Height == 0 {
		n, at = len(r.Entries), func(i int) []byte { return r.Entries[i].Start }
	}
	return new(newCuts(n, at))
}
