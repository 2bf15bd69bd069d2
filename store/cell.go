package store

import "slices"

// A cell is the value of a row: one byte for the kind of the cell, then the value of the entry. Both are in one column,
// so that a row has a single timestamp. The kind of markers is larger than that of entries: if a put and a marker have
// the same timestamp, Cassandra's rule for ties (the larger value wins) picks the marker.
//
// A copied entry is one that a move copied from its source partition to its destination. Readers treat a copied entry
// like an entry, but a copied entry does not count once the source has lost the original. Its kind is the smallest
// byte: at the same timestamp a copied entry can't hide an entry that a client wrote to the destination.
//
// A note is a row that a move leaves in the source that it has emptied. A note is no entry. Only a repair of a restored
// store reads notes.
const (
	kindCopied = 0x00
	kindEntry  = 0x01
	kindMarker = 0x02
	kindNote   = 0x03
)

// EntryCell returns the cell (the stored value of a row) of an entry that a client puts: a byte for the kind "entry",
// then the client's value. The cell is in new memory.
func EntryCell(value []byte) []byte {
	return AppendEntryCell(make([]byte, 0, 1+len(value)), value)
}

// AppendEntryCell appends to dst the cell (the stored value of a row) of an entry that a client puts: a byte for the
// kind "entry", then the client's value. It returns the longer dst.
func AppendEntryCell(dst, value []byte) []byte {
	return append(append(dst, kindEntry), value...)
}

// CopiedCell returns the cell (the stored value of a row) that a move writes into its destination. cell is the one that
// it has read from its source. The cell of a client's entry becomes the cell of a copied entry, in new memory. Any
// other cell is returned unchanged.
func CopiedCell(cell []byte) []byte { return withKind(cell, kindEntry, kindCopied) }

// OriginalCell undoes CopiedCell. If a cell (the stored value of a row) is that of an entry that a move has copied, it
// returns the cell of an ordinary entry, in new memory. It returns any other cell unchanged.
func OriginalCell(cell []byte) []byte { return withKind(cell, kindCopied, kindEntry) }

func withKind(cell []byte, from, to byte) []byte {
	if len(cell) == 0 || cell[0] != from {
		return cell
	}
	cell = slices.Clone(cell)
	cell[0] = to
	return cell
}

// IsCopied reports whether a cell (the stored value of a row) is that of a copied entry: an entry that a move has
// copied from another partition.
func IsCopied(cell []byte) bool { return len(cell) > 0 && cell[0] == kindCopied }

// MarkerCell returns the cell (the stored value of a row) of a marker. A marker is a deletion that readers of the store
// see as a row. While a range moves, markers are written instead of tombstones.
func MarkerCell() []byte { return []byte{kindMarker} }

// IsMarker reports whether a cell (the stored value of a row) is that of a marker: a deletion that readers of the store
// see as a row.
func IsMarker(cell []byte) bool { return len(cell) == 1 && cell[0] == kindMarker }

// NoteCell returns the cell (the stored value of a row) of a note, the row that a move leaves in the partition that it
// has emptied. A note says which range of keys went to the partition with the id to. The range begins with the key of
// the note's row and ends before the key end. An empty end means that the range has no upper bound.
func NoteCell(to PartitionID, end []byte) []byte {
	return append(append([]byte{kindNote}, to[:]...), end...)
}

// Note decodes the cell (the stored value of a row) of a note, the row that a move leaves in the partition that it has
// emptied. It returns the partition to which the keys went and the end of their range; empty: no upper bound. end
// shares the memory of the cell. ok is false if the cell is not that of a note.
func Note(cell []byte) (to PartitionID, end []byte, ok bool) {
	if len(cell) <= len(to) || cell[0] != kindNote {
		return to, nil, false
	}
	return PartitionID(cell[1 : 1+len(to)]), cell[1+len(to):], true
}

// IsNote reports whether a cell (the stored value of a row) is that of a note: the row that a move leaves in the
// partition that it has emptied.
func IsNote(cell []byte) bool {
	_, _, ok := Note(cell)
	return ok
}

// Newer reports whether row a wins over row b of the same key. The higher timestamp wins. At equal timestamps the
// bytewise larger value wins (see Beats), except that an entry and a copy of that entry by a move count as equal: Newer
// then returns false.
func Newer(a, b *Row) bool {
	x, y := a.Value, b.Value
	if len(x) > 0 && len(y) > 0 && x[0] <= kindEntry && y[0] <= kindEntry {
		x, y = x[1:], y[1:]
	}
	return Beats(a.Timestamp, x, b.Timestamp, y)
}

// EntryValue returns the client's value from a cell (the stored value of a row). live is true for an entry or an entry
// that a move has copied; value then shares the memory of the cell. live is false for a deletion marker and for a note,
// which a move has left. EntryValue fails with Corrupt for any other cell.
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
