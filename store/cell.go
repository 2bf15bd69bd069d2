package store

import "slices"

// A cell is the value of a row: a kind byte, then the value of the entry. One column holds
// both, so that a row has one timestamp. The kind of markers is larger than that of entries:
// where a put and a marker have the same timestamp, Cassandra's tie rule (the larger value
// wins) picks the marker.
//
// A copied entry was copied from the source of a move. It is read like an entry, but it
// does not count once the source has lost it. Its kind is the smallest byte: at the same
// timestamp it can't hide what a client wrote to the destination.
//
// A note lies in a source that a move has emptied. It is no entry, and nobody reads it but
// who repairs a restored store.
const (
	kindCopied = 0x00
	kindEntry  = 0x01
	kindMarker = 0x02
	kindNote   = 0x03
)

// EntryCell returns the cell of an entry, in new memory.
func EntryCell(value []byte) []byte {
	return AppendEntryCell(make([]byte, 0, 1+len(value)), value)
}

// AppendEntryCell appends the cell of an entry to dst.
func AppendEntryCell(dst, value []byte) []byte {
	return append(append(dst, kindEntry), value...)
}

// CopiedCell returns the cell of a copy. It is in new memory where it differs from the
// original: the copy of an entry is a copied entry.
func CopiedCell(cell []byte) []byte { return withKind(cell, kindEntry, kindCopied) }

// OriginalCell is the inverse of CopiedCell.
func OriginalCell(cell []byte) []byte { return withKind(cell, kindCopied, kindEntry) }

func withKind(cell []byte, from, to byte) []byte {
	if len(cell) == 0 || cell[0] != from {
		return cell
	}
	cell = slices.Clone(cell)
	cell[0] = to
	return cell
}

// IsCopied reports whether a cell is a copied entry.
func IsCopied(cell []byte) bool { return len(cell) > 0 && cell[0] == kindCopied }

// MarkerCell returns the cell of a marker: a visible deletion, written instead of a plain
// delete while a range moves.
func MarkerCell() []byte { return []byte{kindMarker} }

// IsMarker reports whether a cell is a marker.
func IsMarker(cell []byte) bool { return len(cell) == 1 && cell[0] == kindMarker }

// NoteCell returns the cell of a note. The note says that the keys from the key of its row up to end were moved to
// another partition. end is excluded; an empty end means that there is no end.
func NoteCell(to PartitionID, end []byte) []byte {
	return append(append([]byte{kindNote}, to[:]...), end...)
}

// Note returns what a note says, sharing its memory; ok is false for any other cell.
func Note(cell []byte) (to PartitionID, end []byte, ok bool) {
	if len(cell) <= len(to) || cell[0] != kindNote {
		return to, nil, false
	}
	return PartitionID(cell[1 : 1+len(to)]), cell[1+len(to):], true
}

// IsNote reports whether a cell is a note.
func IsNote(cell []byte) bool {
	_, _, ok := Note(cell)
	return ok
}

// Newer reports whether row a beats row b of the same key, by the rule of Beats, but
// with a copy of an entry equal to the entry.
func Newer(a, b *Row) bool {
	x, y := a.Value, b.Value
	if len(x) > 0 && len(y) > 0 && x[0] <= kindEntry && y[0] <= kindEntry {
		x, y = x[1:], y[1:]
	}
	return Beats(a.Timestamp, x, b.Timestamp, y)
}

// EntryValue returns the value in the cell of an entry, copied or not, sharing its memory.
// live is false for a marker or a note. Any other cell is Corrupt.
func EntryValue(cell []byte) (value []byte, live bool, err error) {
	if len(cell) > 0 && cell[0] <= kindEntry {
		return cell[1:], true, nil
	}
	return nil, false, noEntry(cell)
}

func noEntry(cell []byte) error {
	if IsMarker(cell) || IsNote(cell) {
		return nil
	}
	return Errorf(Corrupt, "a cell of %d bytes is neither an entry nor a marker", len(cell))
}
