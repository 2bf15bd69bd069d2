package move

import (
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Node names one stored node of a bucket's partition map: its id, and the epoch (version of the map) for which it was
// written. The collector of unused nodes needs no more of the node.
type Node struct {
	ID store.NodeID
	// Epoch is the version of the partition map for which the node was written.
	Epoch uint64
}

// Unnamed remembers the stored nodes of a bucket's partition map that the map's root does not name, and when each was
// first found unnamed. These nodes are candidates for deletion. The zero value is ready. An Unnamed is for one
// goroutine.
type Unnamed struct{ since map[store.NodeID]time.Time }

// Due returns the nodes of a bucket's partition map to delete: those that the map's root has not named for at least the
// duration `after`. The caller first lists all stored nodes, and then reads the newest root (at the consistency
// SERIAL). The parameters are:
//   - nodes: the stored nodes
//   - epoch: the epoch (version) of the root
//   - named: the nodes that the root names
func (u *Unnamed) Due(
	epoch uint64, named map[store.NodeID]bool, nodes []Node, now time.Time, after time.Duration,
) (due []store.NodeID) {
	// A node of a later epoch may belong to a pending change of the map, and stays. A node of this epoch or an older
	// one that the root does not name will never be named again: no change to its epoch can succeed any more. It stays
	// for a while, for readers of older epochs.
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
