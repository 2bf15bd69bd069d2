package partmap

import "fmt"

// Phase is how far a range's move from its source partition to its fresh
// destination has come. All unexpired leases of a range are on one phase or on
// two neighbouring ones (invariant I3): between two phases the mover waits.
type Phase uint8

const (
	// Settled: the range lives in one partition.
	Settled Phase = iota
	// Marking: as settled, but deletes leave markers that a copy can carry over,
	// and readers look at the destination already.
	Marking
	// Copying: writes go to the destination; the mover copies the source there.
	Copying
	// Verifying: the mover compares; readers write what only the source has to
	// the destination before they show it, so that a value once shown stays.
	Verifying
	// Draining: nobody reads the source any more; the mover removes it.
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

// ParsePhase is the inverse of String.
func ParsePhase(s string) (Phase, error) {
	for p, name := range phaseNames {
		if s == name {
			return Phase(p), nil
		}
	}
	return 0, fmt.Errorf("there is no phase %q", s)
}

// Rules say what clients do with a range in one phase.
type Rules struct {
	// WriteTo is the side that puts and deletes go to.
	WriteTo Side
	// Markers: a delete writes a marker instead of a tombstone.
	Markers bool
	// ReadSource and ReadDestination are the sides that a read looks at.
	ReadSource, ReadDestination bool
	// WriteThrough: what the source has newer than the destination is written
	// to the destination, with its own timestamp, before it is shown.
	WriteThrough bool
}

// Side is one end of a move. A settled range has a source only: its home.
type Side uint8

const (
	Source Side = iota
	Destination
)

// transitions is the phase table of the protocol; code, tests and documents
// share it. After Draining the destination becomes the range's home and the
// range is Settled, with its sweep pending.
var transitions = [phases]struct {
	rules Rules
	next  Phase
}{
	Settled:   {Rules{WriteTo: Source, ReadSource: true}, Marking},
	Marking:   {Rules{WriteTo: Source, Markers: true, ReadSource: true, ReadDestination: true}, Copying},
	Copying:   {Rules{WriteTo: Destination, Markers: true, ReadSource: true, ReadDestination: true}, Verifying},
	Verifying: {Rules{WriteTo: Destination, Markers: true, ReadSource: true, ReadDestination: true, WriteThrough: true}, Draining},
	Draining:  {Rules{WriteTo: Destination, Markers: true, ReadDestination: true}, Settled},
}

// Rules returns what clients do in phase p. An unknown phase (a map of a newer
// version is refused long before) has the zero Rules: it reads nothing.
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
