package move

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Node is a map node, to the collector.
type Node struct {
	ID store.NodeID
	// Epoch is the one that the node was written for.
	Epoch uint64
}

// Unnamed remembers since when nodes have been found that no root names. The zero value is
// ready. It is for one goroutine.
type Unnamed struct{ since map[store.NodeID]time.Time }

// Due returns the nodes to delete. The nodes were listed first; epoch and named are those
// of a root read at Serial after that. A node of a later epoch may belong to a pending
// swap. No root will ever name any other node that this one does not name, since no swap to
// its epoch can succeed any more; it stays for a while, for readers of older epochs.
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
