package move

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Node is a map node as a collector sees it.
type Node struct {
	ID store.NodeID
	// Epoch is the one that the node was written for; it is in the node.
	Epoch uint64
}

// Unnamed remembers since when nodes have been found without a name. The zero
// value remembers nothing. It is for one goroutine.
type Unnamed struct{ since map[store.NodeID]time.Time }

// Due returns which of the nodes may go. They were listed first; epoch and named
// are those of a root read at Serial after that. A node written for a later epoch
// may belong to a swap that is still pending. Any other one that the root does
// not name never will be named, as no swap to its epoch can succeed any more; it
// stays a while for readers of older epochs.
func (u *Unnamed) Due(epoch uint64, named map[store.NodeID]bool, nodes []Node, now time.Time, after time.Duration) (due []store.NodeID) {
	since := map[store.NodeID]time.Time{}
	for _, n := range nodes {
		if n.Epoch > epoch || named[n.ID] {
			continue
		}
		first, known := u.since[n.ID]
		if !known {
			first = now
		}
		since[n.ID] = first
		if now.Sub(first) >= after {
			due = append(due, n.ID)
		}
	}
	u.since = since
	return due
}
