package pebblestore

import (
	"encoding/binary"
	"slices"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// These bytes name the tables in Pebble: a stored key begins with the byte of its table. doc.go has the form of the
// keys and values of each table.
const (
	tableRows     = 'd'
	tableRemovals = 'x'
	tableQueue    = 'q'
	tableRegister = 'r'
	tableHistory  = 'h'
	tableNodes    = 'n'
	tableMeta     = 'm'
)

// prefixBytes is the length in bytes of the first part of a stored row's key: one byte for the table in Pebble, then
// the address of the partition.
const prefixBytes = 1 + storekit.PartitionBytes

func appendPrefix(dst []byte, table byte, p store.Partition) []byte {
	return storekit.AppendPartition(append(dst, table), p)
}

func appendRowKey(dst []byte, p store.Partition, key []byte) []byte {
	return append(appendPrefix(dst, tableRows, p), key...)
}

func rowKey(p store.Partition, key []byte) []byte {
	return appendRowKey(make([]byte, 0, prefixBytes+len(key)), p, key)
}

// partitionOf returns the partition of the row or removal whose key in Pebble is phys. The address of the partition
// follows the first byte, which names the table.
func partitionOf(phys []byte) store.Partition { return storekit.PartitionAt(phys[1:]) }

// boundKeys returns the interval of Pebble's keys that has the rows of the partition p within the interval of keys b.
// The result lower is inclusive, upper is exclusive. Both use the memory of dst if it is long enough.
func boundKeys(dst []byte, p store.Partition, b store.Bounds) (lower, upper []byte) {
	dst = appendRowKey(dst, p, b.Start)
	if b.StartExclusive && len(b.Start) > 0 {
		dst = append(dst, 0)
	}
	lower = slices.Clip(dst)
	if len(b.End) == 0 {
		return lower, store.PrefixEnd(lower[:prefixBytes])
	}
	return lower, appendRowKey(dst[len(dst):], p, b.End)
}

// These are the kinds of a stored row, as the first byte of its value in Pebble: a row with a value, or a tombstone.
const (
	rowLive      = 1
	rowTombstone = 2
	// rowHeader is the length in bytes of the kind and the timestamp.
	rowHeader = 1 + 8
)

// A stored is a row or a tombstone, decoded from Pebble's value. The zero stored means that neither is stored.
type stored struct {
	kind byte
	ts   store.Timestamp
	cell []byte // the cell of a live row; nil for a tombstone
	at   int64  // when a tombstone was stored, microseconds since 1970
}

func decodeStored(v []byte) (stored, bool) {
	if len(v) < rowHeader {
		return stored{}, false
	}
	r := stored{kind: v[0], ts: store.Timestamp(binary.BigEndian.Uint64(v[1:]))}
	switch {
	case r.kind == rowLive:
		r.cell = v[rowHeader:]
	case r.kind == rowTombstone && len(v) == rowHeader+8:
		r.at = int64(binary.BigEndian.Uint64(v[rowHeader:]))
	default:
		return stored{}, false
	}
	return r, r.ts > 0
}

// putLive encodes a row that is not deleted into dst. The encoding is the kind of row, the timestamp ts and the cell
// (the value of the row). dst must have exactly the length rowHeader+len(cell).
func putLive(dst []byte, ts store.Timestamp, cell []byte) {
	dst[0] = rowLive
	binary.BigEndian.PutUint64(dst[1:], uint64(ts))
	copy(dst[rowHeader:], cell)
}

func tombstoneValue(ts store.Timestamp, at int64) []byte {
	v := make([]byte, rowHeader+8)
	v[0] = rowTombstone
	binary.BigEndian.PutUint64(v[1:], uint64(ts))
	binary.BigEndian.PutUint64(v[rowHeader:], uint64(at))
	return v
}

func queueKey(at int64, rest []byte) []byte {
	k := make([]byte, 0, 1+8+len(rest))
	k = append(k, tableQueue)
	k = binary.BigEndian.AppendUint64(k, uint64(at))
	return append(k, rest...)
}

func splitQueueKey(k []byte) (at int64, rest []byte, ok bool) {
	if len(k) < 1+8+prefixBytes || k[0] != tableQueue {
		return 0, nil, false
	}
	return int64(binary.BigEndian.Uint64(k[1:])), k[9:], true
}

func registerKey(t store.Table, key []byte) []byte {
	return append([]byte{tableRegister, byte(t)}, key...)
}

func historyPrefix(id store.BucketID) []byte { return append([]byte{tableHistory}, id[:]...) }

func historyKey(id store.BucketID, epoch uint64) []byte {
	return binary.BigEndian.AppendUint64(historyPrefix(id), ^epoch)
}

func nodePrefix(b store.BucketID) []byte { return append([]byte{tableNodes}, b[:]...) }

func nodeKey(b store.BucketID, id store.NodeID) []byte {
	return append(nodePrefix(b), id[:]...)
}
