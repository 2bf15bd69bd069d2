package partmap

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Change is a step from one map of a bucket to the next map. The new nodes of the map are written first. Then
// one compare-and-swap replaces the old root by the new root.
type Change struct {
	// Old is the version of the root that Next replaces; zero if Next is the bucket's first root.
	Old store.Version
	// Next is the new root. Its epoch is one above that of Old.
	Next *Root
	// Nodes are the new nodes of the map, which have to be written before Next is swapped in.
	Nodes []Node
	// Replaced are the ids of old nodes that the map of Next does not use any more.
	Replaced []store.NodeID
}

// Stamp holds the inputs of a change that must come from outside this package, which computes only: random ids
// and the time.
type Stamp struct {
	Token store.Token
	Now   time.Time
	// NewNode draws a fresh node id.
	NewNode func() store.NodeID
}

// WithState returns a change of the state of a bucket, and of nothing else. The state goes from open to
// closing, or from closing to open or deleted. Any other step fails with InvalidArgument.
func WithState(old *Root, to State, s Stamp) (Change, error) {
	legal := old.State == Open && to == Closing || old.State == Closing && (to == Open || to == Deleted)
	if !legal {
		return Change{}, invalid("bucket %s can't go from %s to %s", old.Bucket, old.State, to)
	}
	next := old.following(s)
	next.State = to
	return Change{Old: old.Version(), Next: next}, nil
}

// WithSettings returns a change of the settings of a bucket, and of nothing else. It fails with InvalidArgument
// if the bucket is deleted. The new root keeps the given slice, so the caller must not change the slice
// afterwards. The size of the settings is checked only later, by EncodeRoot.
func WithSettings(old *Root, settings []byte, s Stamp) (Change, error) {
	if old.State == Deleted {
		return Change{}, invalid("bucket %s is deleted", old.Bucket)
	}
	next := old.following(s)
	next.Settings = settings
	return Change{Old: old.Version(), Next: next}, nil
}

// Again returns a change that raises the epoch of a root and leaves the map as it is. Once this change is
// applied, every other swap of the old root fails with Conflict, even a swap that arrives late.
func Again(old *Root, s Stamp) Change {
	return Change{Old: old.Version(), Next: old.following(s)}
}

// following returns a copy of the root r for the next change: its epoch is one higher. The copy takes its token
// and its time from the stamp s.
func (r *Root) following(s Stamp) *Root {
	next := *r
	next.Epoch++
	next.Token = s.Token
	next.ChangedAt = s.Now.UnixMicro()
	next.Batches = append([]Batch(nil), r.Batches...)
	return &next
}

// New returns the change that makes the first map of a new bucket: the bucket is open, and its epoch is 1. Each
// entry becomes a range. The starts of the entries must ascend, and the first start must be empty. clock is the
// number of the map clock, the counter that is raised after each change of this map.
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

// checkEntries returns nil if the entries cover the keys from start to below end without gap or overlap, else
// an InvalidArgument error. The first entry must begin at start. The starts must ascend, and the last one must
// be below end. An empty end is plus infinity.
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

// clip returns at most the first 64 bytes of the key, for an error message. A longer key ends with an ellipsis.
func clip(key []byte) []byte {
	const most = 64
	if len(key) > most {
		return append(append([]byte(nil), key[:most]...), "…"...)
	}
	return key
}
