package partmap

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// Node is an encoded node of the tree that is a bucket's map: its id and its bytes in the store. The node is either an
// index node, which names other nodes, or a segment, which says in which partitions keys lie.
type Node struct {
	ID   store.NodeID
	Blob []byte
}

// Change is a step from the present map of a bucket to its next map: the new nodes to write and the new root. A process
// first writes the nodes. Then it replaces the old root by the new root with a single compare-and-swap.
type Change struct {
	// Old is the version of the root that Next replaces. It is zero if Next is the bucket's first root.
	Old store.Version
	// Next is the new root of the bucket's map. Its epoch is higher by 1 than that of Old.
	Next *Root
	// Nodes are the new nodes of the map. They must be written before the root Next is swapped in.
	Nodes []Node
	// Replaced are the ids of the old nodes that the next map does not use any more. They can be deleted later.
	Replaced []store.NodeID
}

// Stamp holds the random ids and the time for a change of a bucket's map. They must come from the caller, since this
// package only computes.
type Stamp struct {
	Token store.Token
	Now   time.Time
	// NewNode returns a fresh random id for a new node of the map.
	NewNode func() store.NodeID
}

// Again returns a change that raises the epoch of the root old and leaves the bucket's map as it is. A process applies
// the change if it does not know whether its earlier swap of the root old has failed. Afterwards that is certain: every
// other swap of old fails with Conflict, even one that arrives late.
//
// The caller may set other State and Settings in the root Next of the change before the caller applies it.
func Again(old *Root, s Stamp) Change {
	return Change{Old: old.Version(), Next: old.following(s)}
}

// following returns a copy of the root r for the next change of the map, with an epoch that is higher by 1. The copy
// takes its token and its time from s.
func (r *Root) following(s Stamp) *Root {
	next := *r
	next.Epoch++
	next.Token = s.Token
	next.ChangedAt = s.Now.UnixMicro()
	next.Batches = append([]Batch(nil), r.Batches...)
	return &next
}

// New returns the change that makes the first map of the new bucket b. The bucket is open, and its epoch is 1. Each
// entry says in which partition one interval of keys lies. The starts of the entries must ascend, and the first start
// must be empty. clock is the number of the map clock: a counter, shared with other buckets, by which processes notice
// changes of the map.
func New(b store.BucketID, clock uint32, entries []Entry, s Stamp) (Change, error) {
	return newMap(b, clock, entries, s, standard)
}

// newMap does the same as New, with nodes of the maximum sizes f.
func newMap(b store.BucketID, clock uint32, entries []Entry, s Stamp, f fill) (Change, error) {
	if err := checkEntries(entries, nil, nil); err != nil {
		return Change{}, err
	}
	next := &Root{
		Bucket: b, Epoch: 1, Token: s.Token, State: Open, Clock: clock, ChangedAt: s.Now.UnixMicro(),
		Ranges: uint64(len(entries)), Entries: entries,
	}
	w := writer{fill: f, header: mapcodec.Header{Bucket: b, Epoch: 1}, newNode: s.NewNode}
	w.fit(next)
	return Change{Next: next, Nodes: w.nodes}, nil
}

// checkEntries checks that the entries cover the keys from start to below end without gap or overlap. Otherwise it
// returns an InvalidArgument error. Each entry covers the keys from its Start to the next Start. So the first entry
// must begin at start, the starts must ascend, and the last start must be below end. An empty end is plus infinity.
func checkEntries(entries []Entry, start, end []byte) error {
	if len(entries) == 0 || string(entries[0].Start) != string(start) {
		return invalid("the entries do not begin at %q", mapcodec.Clip(start))
	}
	for i := range entries {
		e := &entries[i]
		if len(e.Start) > store.MaxKeyBytes {
			return invalid("the cut %q has %d bytes: at most %d", mapcodec.Clip(e.Start), len(e.Start), store.MaxKeyBytes)
		}
		if i > 0 && string(e.Start) <= string(entries[i-1].Start) {
			return invalid("the cut %q is not above the one before it", mapcodec.Clip(e.Start))
		}
	}
	if last := entries[len(entries)-1].Start; len(end) > 0 && string(last) >= string(end) {
		return invalid("the cut %q is not below the end %q", mapcodec.Clip(last), mapcodec.Clip(end))
	}
	return nil
}

// invalid returns an InvalidArgument error.
func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}
