package store

import "github.com/evenkeel/evenkeel/internal/cells"

// EntryCell returns the cell (the stored value of a row) for a value that a client puts: a byte for the kind "entry",
// then the client's value. The cell is in new memory.
func EntryCell(value []byte) []byte {
	return cells.AppendEntry(make([]byte, 0, 1+len(value)), value)
}

// Newer reports whether the row a wins over the row b of the same key under last-write-wins. The higher timestamp wins.
// At equal timestamps the bytewise larger value wins (see Beats). But an entry and a copy of that entry in another
// partition count as equal: Newer then returns false.
func Newer(a, b *Row) bool {
	x, y := a.Value, b.Value
	if len(x) > 0 && len(y) > 0 && x[0] <= cells.KindEntry && y[0] <= cells.KindEntry {
		x, y = x[1:], y[1:]
	}
	return Beats(a.Timestamp, x, b.Timestamp, y)
}

// EntryValue returns the client's value from a cell, which is the stored value of a row. The result live is true if the
// cell is that of a client's entry or of a copied entry; value then shares the memory of the cell. The result live is
// false for a deletion marker and for a note (the row that a move of rows leaves behind). EntryValue fails with Corrupt
// for any other cell.
func EntryValue(cell []byte) (value []byte, live bool, err error) {
	if len(cell) > 0 && cell[0] <= cells.KindEntry {
		return cell[1:], true, nil
	}
	return nil, false, noEntry(cell)
}

func noEntry(cell []byte) error {
	if cells.IsMarker(cell) || cells.IsNote(cell) {
		return nil
	}
	return Errorf(Corrupt, "a cell of %d bytes is neither an entry nor a marker", len(cell))
}
