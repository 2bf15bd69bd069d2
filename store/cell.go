package store

// A cell is what evenkeel stores as a row's value: a kind byte, then the
// entry's value. One column holds both, so that one timestamp is the row's.
// The marker's kind is the larger byte: where a put and a marker have the same
// timestamp, Cassandra's own tie rule (the larger value wins) picks the marker.
const (
	kindEntry  = 0x01
	kindMarker = 0x02
)

// EntryCell builds the cell of an entry in new memory.
func EntryCell(value []byte) []byte {
	c := make([]byte, 1+len(value))
	c[0] = kindEntry
	copy(c[1:], value)
	return c
}

// AppendEntryCell appends the cell of an entry to dst.
func AppendEntryCell(dst, value []byte) []byte {
	return append(append(dst, kindEntry), value...)
}

// MarkerCell builds the cell of a marker: a visible deletion marker, written
// instead of a plain delete while a range moves.
func MarkerCell() []byte { return []byte{kindMarker} }

// IsMarker reports whether a cell is a marker.
func IsMarker(cell []byte) bool { return len(cell) == 1 && cell[0] == kindMarker }

// EntryValue returns the entry's value within a cell, sharing its memory.
// A marker and an empty or foreign cell have none; the latter is Corrupt.
func EntryValue(cell []byte) (value []byte, live bool, err error) {
	switch {
	case len(cell) > 0 && cell[0] == kindEntry:
		return cell[1:], true, nil
	case IsMarker(cell):
		return nil, false, nil
	}
	return nil, false, Errorf(Corrupt, "a cell of %d bytes is neither an entry nor a marker", len(cell))
}
