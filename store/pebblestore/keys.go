package pebblestore

import (
	"encoding/binary"

	"github.com/evenkeel/evenkeel/store"
)

// The table bytes; doc.go lists what lies behind each.
const (
	tableRows     = 'd'
	tableRemovals = 'x'
	tableQueue    = 'q'
	tableRegister = 'r'
	tableHistory  = 'h'
	tableNodes    = 'n'
	tableMeta     = 'm'
)

// prefixBytes is the length of a table byte with a partition.
const prefixBytes = 1 + 16 + 16

func appendPrefix(dst []byte, table byte, p store.Partition) []byte {
	dst = append(dst, table)
	dst = append(dst, p.Bucket[:]...)
	return append(dst, p.ID[:]...)
}

func appendRowKey(dst []byte, p store.Partition, key []byte) []byte {
	return append(appendPrefix(dst, tableRows, p), key...)
}

func rowKey(p store.Partition, key []byte) []byte {
	return appendRowKey(make([]byte, 0, prefixBytes+len(key)), p, key)
}

// partitionOf reads the partition out of a key that appendPrefix began.
func partitionOf(phys []byte) (p store.Partition) {
	copy(p.Bucket[:], phys[1:17])
	copy(p.ID[:], phys[17:33])
	return p
}

// boundKeys are the stored keys at which bounds of a partition begin and end
// (exclusive), built in dst.
func boundKeys(dst []byte, p store.Partition, b store.Bounds) (lower, upper []byte) {
	dst = appendRowKey(dst, p, b.Start)
	if b.StartExclusive && len(b.Start) > 0 {
		dst = append(dst, 0)
	}
	n := len(dst)
	dst = appendPrefix(dst, tableRows, p)
	if len(b.End) > 0 {
		dst = append(dst, b.End...)
	} else {
		increment(dst[n:])
	}
	return dst[:n:n], dst[n:]
}

// increment turns a prefix into the smallest key above all keys that begin with
// it. The table byte is far below 0xff, so there is always one.
func increment(prefix []byte) {
	for i := len(prefix) - 1; i >= 0; i-- {
		prefix[i]++
		if prefix[i] != 0 {
			return
		}
	}
}

// after is the smallest key above every key that begins with prefix.
func after(prefix []byte) []byte {
	next := append([]byte(nil), prefix...)
	increment(next)
	return next
}

func contains(b store.Bounds, key []byte) bool {
	if len(b.End) > 0 && string(key) >= string(b.End) {
		return false
	}
	if b.StartExclusive && len(b.Start) > 0 {
		return string(key) > string(b.Start)
	}
	return string(key) >= string(b.Start)
}

// within reports whether every key of inner is one of outer.
func within(inner, outer store.Bounds) bool {
	if len(outer.End) > 0 && (len(inner.End) == 0 || string(inner.End) > string(outer.End)) {
		return false
	}
	switch {
	case string(inner.Start) != string(outer.Start):
		return string(inner.Start) > string(outer.Start)
	case len(outer.Start) == 0:
		return true
	}
	return inner.StartExclusive || !outer.StartExclusive
}

// The kinds of a stored row.
const (
	rowLive      = 1
	rowTombstone = 2
	// rowHeader is the length of kind and timestamp.
	rowHeader = 1 + 8
)

// A stored is a row as it lies in the database. The zero stored is "none".
type stored struct {
	kind byte
	ts   store.Timestamp
	cell []byte // of a live row; a tombstone has nil
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

// putLive writes a live row's value into dst, which has its exact length.
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

func historyKey(id []byte, epoch uint64) []byte {
	k := append([]byte{tableHistory}, id...)
	return binary.BigEndian.AppendUint64(k, ^epoch)
}

func nodeKey(b store.BucketID, id store.NodeID) []byte {
	k := make([]byte, 0, 1+16+16)
	k = append(append(k, tableNodes), b[:]...)
	return append(k, id[:]...)
}
