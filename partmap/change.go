package partmap

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

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

// WithState returns a change of the state of a bucket, and of nothing else. The parameter old is the present root of
// the bucket's map, and the parameter to is the new state. The state may go from open to closing, and from closing to
// open or deleted. Any other step fails with InvalidArgument.
func WithState(old *Root, to State, s Stamp) (Change, error) {
	legal := old.State == Open && to == Closing || old.State == Closing && (to == Open || to == Deleted)
	if !legal {
		return Change{}, invalid("bucket %s can't go from %s to %s", old.Bucket, old.State, to)
	}
	next := old.following(s)
	next.State = to
	return Change{Old: old.Version(), Next: next}, nil
}

// WithSettings returns a change of the settings of a bucket, and of nothing else. old is the present root of the
// bucket's map. WithSettings fails with InvalidArgument if the bucket is deleted. The new root keeps the given slice,
// so the caller must not change the slice afterwards. Only EncodeRoot checks the size of the settings, later.
func WithSettings(old *Root, settings []byte, s Stamp) (Change, error) {
	if old.State == Deleted {
		return Change{}, invalid("bucket %s is deleted", old.Bucket)
	}
	next := old.following(s)
	next.Settings = settings
	return Change{Old: old.Version(), Next: next}, nil
}

// Again returns a change that raises the epoch of the root old and leaves the bucket's map as it is. A process applies
// the change if it does not know whether its earlier swap of the root old has failed. Afterwards that is certain: every
// other swap of old fails with Conflict, even one that arrives late.
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

func newMap(b store.BucketID, clock uint32, entries []Entry, s Stamp, f fill) (Change, error) {
	if err := checkEntries(entries, nil, nil); err != nil {
		return Change{}, err
	}
	next := &Root{
		Bucket: b, Epoch: 1, Token: s.Token, State: Open, Clock: clock, ChangedAt: s.Now.UnixMicro(),
		Ranges: uint64(len(entries)), Entries: entries,
	}
	w := writer{fill: f, header: nodeHeader{Bucket: b, Epoch: 1}, newNode: s.NewNode}
	w.fit(next)
	return Change{Next: next, Nodes: w.nodes}, nil
}

// checkEntries checks that the entries cover the keys from start to below end without gap or overlap. Otherwise it
// returns an InvalidArgument error. Each entry covers the keys from its Start to the next Start. So the first entry
// must begin at start, the starts must ascend, and the last start must be below end. An empty end is plus infinity.
func checkEntries(entries []Entry, start, end []byte) error {
	if len(entries) == 0 || string(entries[0].Start) != string(start) {
		return invalid("the entries do not begin at %q", clip(start))
	}
	for i := range entries {
		e := &entries[i]
		if len(e.Start) > store.MaxKeyBytes {
			return invalid("the cut %q has %d bytes: at most %d", clip(e.Start), len(e.Start), store.MaxKeyBytes)
		}
		if i > 0 && string(e.Start) <= string(entries[i-1].Start) {
			return invalid("the cut %q is not above the one before it", clip(e.Start))
		}
	}
	if last := entries[len(entries)-1].Start; len(end) > 0 && string(last) >= string(end) {
		return invalid("the cut %q is not below the end %q", clip(last), clip(end))
	}
	return nil
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}

func corrupt(format string, args ...any) error { return store.Errorf(store.Corrupt, format, args...) }

// clip returns at most the first 64 bytes of the key, for an error message. If the key is longer, an ellipsis follows.
func clip(key []byte) []byte {
	const most = 64
	if len(key) > most {
		return append(append([]byte(nil), key[:most]...), "…"...)
	}
	return key
}
