package store

import "github.com/evenkeel/evenkeel/internal/cells"

// EntryCell returns the cell (the stored value of a row) for a value that a client puts: a byte for the kind "entry",
// then the client's value. The cell is in new memory.
func EntryCell(value []byte) []byte {
	return cells.AppendEntry(make([]byte, 0, 1+len(value)), value)
}

// EntryValue returns the client's value from a cell, which is the stored value of a row. The result live says what the
// cell is:
//   - true: a client's entry, or a copy of one. The value shares the memory of the cell.
//   - false: a deletion marker, or a note (a row that a move of rows leaves behind).
//
// EntryValue fails with Corrupt for any other cell.
func EntryValue(cell []byte) (value []byte, live bool, err error) {
	if len(cell) > 0 && cell[0] <= cells.KindEntry {
		return cell[1:], true, nil
	}
	return nil, false, noEntry(cell)
}

// noEntry returns nil if the cell is a deletion marker or a note, which are not entries of clients. For any other cell
// it returns a Corrupt error.
func noEntry(cell []byte) error {
	if cells.IsMarker(cell) || cells.IsNote(cell) {
		return nil
	}
	return Errorf(Corrupt, "a cell of %d bytes is neither an entry nor a marker", len(cell))
}
