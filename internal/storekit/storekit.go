// Package storekit has helpers that the stores of this module share, and helpers by which the packages above use
// stores:
//
//   - checks of the arguments of a store's methods, such as CheckRows;
//   - the encodings of records and of partition addresses;
//   - contexts that tell a store more about a put (MakingRoom), and comparisons of rows and intervals.
//
// No program needs the package. A store outside of this module finds the errors, the limits and the order of writes
// (Beats) in package store. Such a store has encodings of its own.
package storekit

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/store"
)

// makingRoom is the key under which a context from MakingRoom has its mark.
type makingRoom struct{}

// MakingRoom returns a context for puts that prepare a deletion, such as the put of a delete marker. A store whose disk
// is nearly full refuses other puts, but accepts puts with this context as long as it accepts deletions. So a client
// can delete objects to free space.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makingRoom{}, true)
}

// MakesRoom reports whether the context ctx comes from MakingRoom: puts with it prepare a deletion. A store asks before
// it refuses a put because the disk is nearly full.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makingRoom{}) != nil }

// Everywhere returns the rows of the store s, as an object whose reads and writes have the widest consistency that s
// offers. If s implements store.EachQuorum, since it has replicas in several data centres, they need a quorum of each
// data centre. Otherwise Everywhere returns s itself.
func Everywhere(s store.Rows) store.Rows {
	if e, ok := s.(store.EachQuorum); ok {
		return e.EachQuorum()
	}
	return s
}

// Newer reports whether the row a wins over the row b of the same key. The higher timestamp wins. At equal timestamps
// the bytewise larger value wins (see store.Beats). There is one exception: an entry and a copy of that entry in
// another partition count as equal, so the result is false.
func Newer(a, b *store.Row) bool {
	x, y := a.Value, b.Value
	if len(x) > 0 && len(y) > 0 && x[0] <= cells.KindEntry && y[0] <= cells.KindEntry {
		x, y = x[1:], y[1:]
	}
	return store.Beats(a.Timestamp, x, b.Timestamp, y)
}

// Covers reports whether the interval of keys b contains every key that the interval o contains.
func Covers(b, o store.Bounds) bool {
	if len(b.End) > 0 && (len(o.End) == 0 || string(o.End) > string(b.End)) {
		return false
	}
	switch {
	case len(b.Start) == 0:
		return true
	case string(o.Start) != string(b.Start):
		return string(o.Start) > string(b.Start)
	}
	return o.StartExclusive || !b.StartExclusive
}

// PageBytes returns the largest size in bytes (of keys and values) of a page that is read with the options o. The
// result is o.Bytes if that number is positive and at most store.MaxPageBytes; else it is store.MaxPageBytes.
func PageBytes(o *store.SliceOptions) int {
	if o.Bytes <= 0 {
		return store.MaxPageBytes
	}
	return min(o.Bytes, store.MaxPageBytes)
}

// NewToken returns a fresh random token, which the caller puts into the next version of a record before a
// compare-and-swap.
func NewToken() store.Token { return store.Token(uuid.New()) }

// RegisterName is the address of a register (a record that changes only by compare-and-swap): its table and its key.
// The type exists for error messages, which show the address as text.
type RegisterName struct {
	Table store.Table
	Key   []byte
}

// String returns the table and the key as text. A key of 16 bytes is written as a UUID, as the id of a bucket is.
func (n RegisterName) String() string {
	if id, err := uuid.FromBytes(n.Key); err == nil {
		return n.Table.String() + " " + id.String()
	}
	return fmt.Sprintf("%s %.64q", n.Table, n.Key)
}

// NodeName is the address of one node of a bucket's map: the bucket and the id of the node. The type exists for error
// messages, which show the address as text.
type NodeName struct {
	Bucket store.BucketID
	ID     store.NodeID
}

// String returns the ids of the bucket and the node as text, with a slash between them.
func (n NodeName) String() string { return n.Bucket.String() + "/" + n.ID.String() }

// AppendRecord appends the encoded record r to dst and returns the extended slice. The encoding is the epoch (8 bytes,
// big-endian), the token (16 bytes) and the blob.
func AppendRecord(dst []byte, r store.Record) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Epoch)
	return append(append(dst, r.Token[:]...), r.Blob...)
}

// DecodeRecord decodes a register's record from b, which AppendRecord has encoded. The blob of the record is a copy.
// The result ok is false if b is too short.
func DecodeRecord(b []byte) (r store.Record, ok bool) {
	const head = 8 + len(r.Token)
	if len(b) < head {
		return r, false
	}
	r.Epoch = binary.BigEndian.Uint64(b)
	r.Token = store.Token(b[8:head])
	r.Blob = append([]byte{}, b[head:]...)
	return r, true
}

// PartitionBytes is the length in bytes of an encoded partition address: 16 bytes for the id of the bucket, then 16
// bytes for the id of the partition.
const PartitionBytes = 32

// AppendPartition appends the encoded address of the partition p to dst: the id of the bucket, then the id of the
// partition (16 bytes each). AppendPartition returns the extended slice.
func AppendPartition(dst []byte, p store.Partition) []byte {
	return append(append(dst, p.Bucket[:]...), p.ID[:]...)
}

// PartitionAt decodes the address of a partition from the first PartitionBytes bytes of b, as AppendPartition has
// encoded the address. b may be longer, but not shorter.
func PartitionAt[B string | []byte](b B) (p store.Partition) {
	copy(p.ID[:], b[copy(p.Bucket[:], b):])
	return p
}
