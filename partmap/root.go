package partmap

import (
	"cmp"

	"github.com/evenkeel/evenkeel/store"
)

// State is the state of a bucket: open, closing or deleted.
type State uint8

const (
	// Open is the state of a bucket that clients read and write.
	Open State = iota + 1
	// Closing is the state of a bucket that is being deleted, while a client checks that the bucket is empty. Other
	// clients get no access (no lease).
	Closing
	// Deleted is the state of a bucket that is gone. No other state follows.
	Deleted
)

var stateNames = map[State]string{Open: "open", Closing: "closing", Deleted: "deleted"}

func (s State) String() string { return cmp.Or(stateNames[s], "unknown state") }

// Root is the root of a bucket's map, a tree that says in which partition each key lies. The root of a small map holds
// the entries of all ranges of keys. The root of a larger map names the topmost nodes of the tree. A Root is immutable:
// each change of the map makes a new Root with a higher epoch (see Edit).
type Root struct {
	Bucket store.BucketID
	// Epoch and Token repeat the version of the register in which the root is stored. A reader compares both with that
	// version, to detect a torn read.
	Epoch uint64
	Token store.Token
	State State
	// Clock is the number of the map clock, a shared counter that each change of this map raises. Other processes watch
	// the counter to notice changes.
	Clock uint32
	// ChangedAt (Unix microseconds) is the time at which this epoch began, by the wall clock of the process that
	// swapped the root. Only reports, and the search for buckets whose deletion was abandoned, use ChangedAt.
	ChangedAt int64
	// Ranges is the number of entries of the whole map.
	Ranges uint64
	// Batches are the batches of moves that are in flight, or whose markers are not removed (swept) yet. They are
	// ordered by ID, and at most 64. An entry names its batch, and only the root has the phase of the batch. So a
	// change of the phase rewrites only the root, however many ranges move. All moves of a batch change their phase
	// together, when the slowest is ready.
	Batches []Batch
	// Height is the number of levels of nodes below the root. With Height 0, Entries holds the whole map. With Height
	// 1, Children are segments, nodes with entries. With Height 2, Children are index nodes over segments, and so on.
	Height   uint8
	Entries  []Entry
	Children []Child
	// Settings are bytes that higher layers keep with the bucket, at most 16 KiB. They are in the root so that a lease
	// covers them: a change of the settings waits for older leases, as a move does. The slice is immutable. Programs
	// that do not know of settings refuse a root that has settings.
	Settings []byte
}

// Child is a reference to a node of a bucket's map. The root and each index node hold a Child for each node directly
// below them.
type Child struct {
	// Start is the lowest key of the ranges below the node. Only the first node of a level of the tree has an empty
	// Start.
	Start []byte
	Node  store.NodeID
}

// Version returns the version at which the root is stored: its epoch and its token. A swap of the root names the
// version that it replaces.
func (r *Root) Version() store.Version { return store.Version{Epoch: r.Epoch, Token: r.Token} }

// BatchOf returns the phase of the batch of moves with this id. The result sweepPending is true if the moves are done,
// but have left markers that are not removed yet. A batch that the root does not list is over: its phase is Settled,
// and sweepPending is false.
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

// rangeOf returns the range of the entry e of this map, with the phase of its move. The parameter end is the start of
// the next entry; an empty end is plus infinity.
func (r *Root) rangeOf(e Entry, end []byte) Range {
	p, sweep := r.BatchOf(e.Batch)
	return Range{Entry: e, End: end, Phase: p, SweepPending: sweep}
}
