package partmap

import "fmt"

// Phase is a step of the move of a range of keys from its source partition to a fresh destination partition. Clients
// follow the phase that they see under a lease of the map. Before a mover begins the next phase, it waits until all
// leases from earlier phases have ended. So at any time clients are in the same phase, or in two successive phases
// (invariant I3).
type Phase uint8

const (
	// Settled is the phase of a range that does not move: its rows lie in a single partition.
	Settled Phase = iota
	// Marking is the first phase of a move. Clients act as in Settled, with two differences. Deletes write markers,
	// because a mover can copy a marker but not a tombstone. Reads include the destination.
	Marking
	// Copying is the phase in which clients write to the destination. Meanwhile the mover copies the rows of the source
	// to the destination.
	Copying
	// Verifying is the phase in which the mover compares both partitions. If a reader finds a row only in the source,
	// the reader copies the row to the destination before it shows the row. So the row stays.
	Verifying
	// Draining is the last phase of a move: nobody reads the source any more, and the mover removes the rows of the
	// source.
	Draining

	phases = iota
)

var phaseNames = [phases]string{"settled", "marking", "copying", "verifying", "draining"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase %d", uint8(p))
}

// Rules say what clients do with a range of keys in a phase of its move: to which of the two partitions they write,
// from which they read, and how they delete.
type Rules struct {
	// WriteDestination means that puts and deletes go to the destination of the move. Otherwise they go to its source,
	// the only partition of a range that does not move.
	WriteDestination bool
	// Markers means that deletes write markers, rows that say "deleted" and can be copied, instead of tombstones of the
	// store.
	Markers bool
	// ReadSource and ReadDestination say which of the two partitions of a move a read has to look at.
	ReadSource, ReadDestination bool
	// WriteThrough means that readers copy newer rows. If a reader finds a newer row in the source, the reader copies
	// the row to the destination, with the row's own timestamp, before it shows the row.
	WriteThrough bool
}

// transitions is the table of the phases of a move of a range. For each phase it has the rules for clients, and the
// phase that follows. After the last phase, Draining, the destination holds the range alone. The range is then Settled,
// and the markers that the move has left must still be removed (swept).
var transitions = [phases]struct {
	rules Rules
	next  Phase
}{
	Settled: {Rules{ReadSource: true}, Marking},
	Marking: {Rules{Markers: true, ReadSource: true, ReadDestination: true}, Copying},
	Copying: {Rules{WriteDestination: true, Markers: true, ReadSource: true, ReadDestination: true}, Verifying},
	Verifying: {
		Rules{WriteDestination: true, Markers: true, ReadSource: true, ReadDestination: true, WriteThrough: true}, Draining,
	},
	Draining: {Rules{WriteDestination: true, Markers: true, ReadDestination: true}, Settled},
}

// Rules returns the rules that clients follow for a range of keys in the phase p of its move. The rules of an unknown
// phase are zero: clients read nothing. Unknown phases do not occur, since the decoder refuses maps of newer versions.
func (p Phase) Rules() Rules {
	if int(p) >= phases {
		return Rules{}
	}
	return transitions[p].rules
}
