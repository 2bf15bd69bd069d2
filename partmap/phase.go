package partmap

import "fmt"

// Phase is a step of the move of a range from its source partition to a fresh destination partition. Before a
// mover begins the next phase, it waits until old leases have ended. So at any time the valid leases of a range
// see one phase, or two successive ones (invariant I3).
type Phase uint8

const (
	// Settled: the range lives in one partition and does not move.
	Settled Phase = iota
	// Marking: clients act as in Settled, with two differences. Deletes write markers, because a marker can be
	// copied and a tombstone can't. Reads include the destination.
	Marking
	// Copying: writes go to the destination. Meanwhile the mover copies the rows of the source to the
	// destination.
	Copying
	// Verifying: the mover compares both partitions. A reader that finds a row only in the source copies the
	// row to the destination before the reader shows it, so that the row stays.
	Verifying
	// Draining: nobody reads the source any more; the mover removes the source's rows.
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

// Rules say what clients do with a range in one phase of its move: which of the two partitions they write to
// and read from, and how they delete.
type Rules struct {
	// WriteTo is the side that receives puts and deletes.
	WriteTo Side
	// Markers: deletes write markers instead of tombstones.
	Markers bool
	// ReadSource and ReadDestination say which sides a read has to look at.
	ReadSource, ReadDestination bool
	// WriteThrough: a reader that finds a newer row in the source writes the row to the destination, with the
	// row's own timestamp, before the reader shows it.
	WriteThrough bool
}

// Side says which of the two partitions of a move is meant: the source or the destination. A range that does
// not move has only a source, the partition that holds it.
type Side uint8

const (
	Source Side = iota
	Destination
)

// transitions is the table of the phases of a move. For each phase it has the rules for clients, and the phase
// that follows. After the last phase, Draining, the destination holds the range alone. The range is then
// Settled, and the markers that the move has left must still be swept (removed).
var transitions = [phases]struct {
	rules Rules
	next  Phase
}{
	Settled: {Rules{WriteTo: Source, ReadSource: true}, Marking},
	Marking: {Rules{WriteTo: Source, Markers: true, ReadSource: true, ReadDestination: true}, Copying},
	Copying: {Rules{WriteTo: Destination, Markers: true, ReadSource: true, ReadDestination: true}, Verifying},
	Verifying: {
		Rules{WriteTo: Destination, Markers: true, ReadSource: true, ReadDestination: true, WriteThrough: true}, Draining,
	},
	Draining: {Rules{WriteTo: Destination, Markers: true, ReadDestination: true}, Settled},
}

// Rules returns the rules that clients follow in the phase p. The rules of an unknown phase are zero: clients
// read nothing. Unknown phases do not occur, since the decoder refuses maps of newer versions.
func (p Phase) Rules() Rules {
	if int(p) >= phases {
		return Rules{}
	}
	return transitions[p].rules
}

// Next returns the phase that follows the phase p in a move, and true. If p is unknown, the second result is
// false.
func Next(p Phase) (Phase, bool) {
	if int(p) >= phases {
		return 0, false
	}
	return transitions[p].next, true
}
