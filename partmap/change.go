package partmap

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Change is a step from one map to the next: the nodes to write, then the root to swap in.
type Change struct {
	// Old is the version to replace; zero for a bucket's first root.
	Old store.Version
	// Next is the new root, one epoch later.
	Next *Root
	// Nodes are the new nodes of Next, to be written before it.
	Nodes []Node
	// Replaced are the nodes of the old map that are not in Next.
	Replaced []store.NodeID
}

// Stamp has the inputs of a change that are not pure: the time and random ids.
type Stamp struct {
	Token store.Token
	Now   time.Time
	// NewNode draws a fresh node id.
	NewNode func() store.NodeID
}

// WithState changes the state of a bucket only: open to closing, and closing to open or
// deleted. Anything else is an InvalidArgument.
func WithState(old *Root, to State, s Stamp) (Change, error) {
	legal := old.State == Open && to == Closing || old.State == Closing && (to == Open || to == Deleted)
	if !legal {
		return Change{}, invalid("bucket %s can't go from %s to %s", old.Bucket, old.State, to)
	}
	next := old.following(s)
	next.State = to
	return Change{Old: old.Version(), Next: next}, nil
}

// WithSettings changes the settings of a bucket that is not deleted.
func WithSettings(old *Root, settings []byte, s Stamp) (Change, error) {
	if old.State == Deleted {
		return Change{}, invalid("bucket %s is deleted", old.Bucket)
	}
	next := old.following(s)
	next.Settings = settings
	return Change{Old: old.Version(), Next: next}, nil
}

// Again returns a change to the same map at the next epoch. After it every other swap of the
// present root is a Conflict.
func Again(old *Root, s Stamp) Change {
	return Change{Old: old.Version(), Next: old.following(s)}
}

// following returns a copy of the root, one epoch later.
func (r *Root) following(s Stamp) *Root {
	next := *r
	next.Epoch++
	next.Token = s.Token
	next.ChangedAt = s.Now.UnixMicro()
	next.Batches = append([]Batch(nil), r.Batches...)
	return &next
}

// New returns the change to the first map of a bucket: epoch 1, open. The entries become its
// ranges; their starts must ascend, from the empty one.
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

// checkEntries refuses entries that do not tile [start, end).
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

// clip shortens a key for an error message.
func clip(key []byte) []byte {
	const most = 64
	if len(key) > most {
		return append(append([]byte(nil), key[:most]...), "…"...)
	}
	return key
}
