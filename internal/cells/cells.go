// Package cells tells the kinds of cells apart. A cell is the value of a row as a store keeps it: one byte for the
// kind, then the client's value. Programs put and read entries only (store.EntryCell, store.EntryValue); the other
// kinds are of moves and deletions.
package cells

import "slices"

// These constants are the kinds of cells. A cell is the value of a row as the store keeps it: one byte for the kind,
// then the client's value. Both are in one column, so that a row has a single timestamp.
//   - An entry is a row that a client has put.
//   - A marker is a deletion that readers of the store see as a row.
//   - A copied entry is an entry that a move of rows between two partitions has copied from the source to the
//     destination. Readers treat it like an entry, but it does not count once the source has lost the original.
//   - A note is a row that a move leaves in the source that the move has emptied. It holds no client's value. Only a
//     repair of a restored store reads notes.
//
// At equal timestamps Cassandra keeps the larger value. So a marker, whose kind is larger, wins over an entry. A copied
// entry, whose kind is the smallest, can't hide an entry that a client wrote to the destination.
const (
	KindCopied = 0x00
	KindEntry  = 0x01
	KindMarker = 0x02
	KindNote   = 0x03
)

// AppendEntry appends to dst the cell (the stored value of a row) for a value that a client puts: a byte for the kind
// "entry", then the client's value. AppendEntry returns the extended slice.
func AppendEntry(dst, value []byte) []byte {
	return append(append(dst, KindEntry), value...)
}

// Copied returns the cell (the stored value of a row) that a move of rows between two partitions writes into the
// destination. The argument is the cell that the move has read from the source. The cell of a client's entry becomes
// the cell of a copied entry, in new memory. Any other cell is returned unchanged.
func Copied(cell []byte) []byte { return withKind(cell, KindEntry, KindCopied) }

// Original undoes Copied: it turns the cell (the stored value of a row) of a copied entry into the cell of an ordinary
// entry, in new memory. Any other cell is returned unchanged.
func Original(cell []byte) []byte { return withKind(cell, KindCopied, KindEntry) }

func withKind(cell []byte, from, to byte) []byte {
	if len(cell) == 0 || cell[0] != from {
		return cell
	}
	cell = slices.Clone(cell)
	cell[0] = to
	return cell
}

// IsCopied reports whether a cell (the stored value of a row) is that of a copied entry. A move of rows has copied the
// entry from another partition.
func IsCopied(cell []byte) bool { return len(cell) > 0 && cell[0] == KindCopied }

// Marker returns the cell (the stored value of a row) of a deletion marker. Unlike a tombstone, a marker is a row that
// readers of the store see. While rows move between partitions, deletions write markers instead of tombstones.
func Marker() []byte { return []byte{KindMarker} }

// IsMarker reports whether a cell (the stored value of a row) is that of a deletion marker. A marker is a deletion that
// readers of the store see as a row.
func IsMarker(cell []byte) bool { return len(cell) == 1 && cell[0] == KindMarker }

// NewNote returns the cell (the stored value of a row) of a note. A move of rows leaves a note in the partition that
// the move has emptied, for a later repair of a restored store. The note says that an interval of keys went to the
// partition with the id to. The interval begins with the key of the note's row and ends before the key end. An empty
// end means that the interval has no upper bound.
func NewNote(to [16]byte, end []byte) []byte {
	return append(append([]byte{KindNote}, to[:]...), end...)
}

// Note decodes the cell (the stored value of a row) of a note. A move of rows leaves notes in the partition that it has
// emptied; each says where an interval of keys went. The results are
//   - to: the partition to which the keys went;
//   - end: the exclusive end of the interval, or empty if it has no upper bound. It shares the memory of the cell;
//   - ok: false if the cell is not that of a note.
func Note(cell []byte) (to [16]byte, end []byte, ok bool) {
	if len(cell) <= len(to) || cell[0] != KindNote {
		return to, nil, false
	}
	return [16]byte(cell[1 : 1+len(to)]), cell[1+len(to):], true
}

// IsNote reports whether a cell (the stored value of a row) is that of a note. A note is the row that a move of rows
// leaves in the partition that the move has emptied.
func IsNote(cell []byte) bool {
	_, _, ok := Note(cell)
	return ok
}
