package partmap

import "fmt"

// Phase is a step of the move of a range from its source partition to a fresh destination.
// All unexpired leases of a range are on one phase or on two neighbouring ones (invariant
// I3): the mover waits between two phases.
type Phase uint8

const (
	// Settled: the range lives in one partition.
	Settled Phase = iota
	// Marking: as Settled, but deletes write markers, which can be copied, and reads include
	// the destination.
	Marking
	// Copying: writes go to the destination; the mover copies the source there.
	Copying
	// Verifying: the mover compares both sides; readers copy rows that only the source has
	// to the destination before they show them, so that they stay.
	Verifying
	// Draining: the source is not read any more; the mover removes it.
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

// Rules are the rules for clients in one phase.
type Rules struct {
	// WriteTo is the side of puts and deletes.
	WriteTo Side
	// Markers: deletes write markers instead of tombstones.
	Markers bool
	// ReadSource and ReadDestination are the sides of reads.
	ReadSource, ReadDestination bool
	// WriteThrough: rows that are newer in the source are written to the destination, with
	// their timestamps, before they are shown.
	WriteThrough bool
}

// Side is one end of a move. A settled range has a source only: its home.
type Side uint8

const (
	Source Side = iota
	Destination
)

// transitions is the phase table of the protocol. After Draining the destination becomes the
// home, and the range is Settled with its sweep pending.
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

// Rules returns the rules of phase p. Those of an unknown phase are zero: it reads nothing.
// (Maps of newer versions are refused when they are decoded.)
func (p Phase) Rules() Rules {
	if int(p) >= phases {
		return Rules{}
	}
	return transitions[p].rules
}

// Next returns the phase that follows p; false for an unknown phase.
func Next(p Phase) (Phase, bool) {
	if int(p) >= phases {
		return 0, false
	}
	return transitions[p].next, true
}
