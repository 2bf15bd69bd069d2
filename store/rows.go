package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
)

// ID is a random UUID that identifies one thing of a store: a bucket, a partition or a node of a map. The type
// parameter keeps the three apart.
type ID[of any] uuid.UUID

// BucketID identifies a bucket for good. The name of a deleted bucket may be used again for a new bucket; its id is
// never reused.
type BucketID = ID[bucket]

// PartitionID identifies a partition, which is a set of rows that the store keeps together under one partition key. A
// bucket's rows are spread over partitions by their keys. The id is a fresh random UUID and is never reused.
type PartitionID = ID[partition]

// NodeID identifies one node of a bucket's map, which says which partition holds which keys. A node is an immutable
// block of the map, written once. The id is a fresh random UUID.
type NodeID = ID[node]

type (
	bucket    struct{}
	partition struct{}
	node      struct{}
)

// String returns the UUID in its canonical form, e.g. "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".
func (id ID[of]) String() string { return uuid.UUID(id).String() }

// MarshalText returns the canonical text of the UUID, for JSON and other encoders. It implements
// encoding.TextMarshaler.
func (id ID[of]) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText sets the id from the text of a UUID, and fails if the text is not a UUID. It implements
// encoding.TextUnmarshaler.
func (id *ID[of]) UnmarshalText(text []byte) error {
	err := (*uuid.UUID)(id).UnmarshalText(text)
	if _, partition := any(id).(*PartitionID); partition && err != nil {
		err = fmt.Errorf("%q is not a partition's id: %w", text, err)
	}
	return err
}

// IsZero reports whether the id is zero. The zero id means "no bucket", "no partition" or "no node".
func (id ID[of]) IsZero() bool { return id == ID[of]{} }

// Partition is the address of one partition, a set of rows that the store keeps together. It consists of the id of the
// bucket and the id of the partition. The latter alone would be unique. The bucket is part of the address so that a
// partition to which no bucket's map refers any more still shows its bucket.
type Partition struct {
	Bucket BucketID
	ID     PartitionID
}

// String returns the address as text: the id of the bucket, a slash and the id of the partition.
func (p Partition) String() string { return p.Bucket.String() + "/" + p.ID.String() }

// Timestamp is the time of a write in microseconds since 1970 (UTC), chosen by the writer. Of several writes of a row
// the store keeps the one with the highest timestamp, in whatever order the writes arrive. A timestamp must be
// positive.
type Timestamp int64

// These limits of keys, values and batches hold for every store. The limits come from Cassandra. The limit of a value
// is well below Cassandra's limit of a mutation.
const (
	// MaxKeyBytes is the largest length of a row's key in bytes (Cassandra's limit of a clustering key). A longer key
	// is an InvalidArgument error.
	MaxKeyBytes = 65_535
	// MaxValueBytes is the largest length of a row's value in bytes (1 MiB). A longer value is an InvalidArgument
	// error. Clients set lower limits.
	MaxValueBytes = 1 << 20
	// MaxBatchRows is the largest number of rows of one Put. MaxBatchBytes is the largest number of bytes of their keys
	// and values together. More is an InvalidArgument error.
	MaxBatchRows  = 10_000
	MaxBatchBytes = 4 << 20
	// MaxPageRows is the largest number of rows of one Slice, and of items of one page of an enumeration. MaxPageBytes
	// bounds the bytes of the keys and values of a Slice together: the page ends early, with More set, at the row that
	// reaches this limit.
	MaxPageRows  = 10_000
	MaxPageBytes = 4 << 20
	// MaxNodeBytes is the largest number of bytes of one node of a bucket's map. MaxRecordBytes is the largest number
	// of bytes of the content of a register. More is an InvalidArgument error.
	MaxNodeBytes   = 4 << 20
	MaxRecordBytes = 64 << 10
)

// Row is one key with its value and the timestamp of the write that put the value.
//
// Value is opaque to a store and never nil in a stored row. The first byte of Value says what the row is, such as an
// entry of a client or a deletion marker (see EntryCell). Rows that a store returns are read-only, and the rows of one
// page may share memory: clone a key or value that must outlive the page. A store neither keeps nor changes rows that
// are passed to it.
type Row struct {
	Key, Value []byte
	// Timestamp is always set by Get. Slice sets Timestamp only if SliceOptions.Timestamps asks for it; else Timestamp
	// is zero.
	Timestamp Timestamp
}

// Bounds is an interval of keys, from Start up to End, ordered bytewise. Calls take it to select rows. The zero Bounds
// contains every key.
type Bounds struct {
	// Start is the lower bound; an empty Start means minus infinity.
	Start []byte
	// StartExclusive excludes the key Start itself from the interval. (Start+"\x00" would do the same, but could be
	// longer than MaxKeyBytes.) StartExclusive has no effect if Start is empty.
	StartExclusive bool
	// End is the upper bound, always exclusive; an empty End means plus infinity.
	End []byte
}

// Within reports whether the interval of keys b contains the key.
func Within[K string | []byte](key K, b Bounds) bool {
	if len(b.End) > 0 && string(key) >= string(b.End) {
		return false
	}
	if b.StartExclusive && len(b.Start) > 0 {
		return string(key) > string(b.Start)
	}
	return string(key) >= string(b.Start)
}

// PrefixEnd returns the exclusive end of the interval of all keys that begin with prefix, e.g. "photos0" for "photos/".
// The end is the lowest key above all of these keys, in new memory. If no key is above them, since prefix is empty or
// has only bytes 0xff, PrefixEnd returns nil. As the end of an interval, nil means that there is no upper bound.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// SliceOptions are the options of one call of Slice, which reads rows of one partition in the order of their keys.
type SliceOptions struct {
	// Limit is the most rows of the page, 1 to MaxPageRows.
	Limit int
	// Bytes is the number of bytes of keys and values at which the page ends. The row that reaches this number is the
	// last row of the page. 0 or a value above MaxPageBytes means MaxPageBytes.
	Bytes int
	// Reverse means that Slice reads downwards, and returns the highest keys first.
	Reverse bool
	// Timestamps asks for Row.Timestamp, which makes a read up to 15 % more expensive for Cassandra.
	Timestamps bool
	// Into is memory that Slice reuses for Page.Rows; it may be nil. Slice overwrites Into from its beginning. Keys and
	// values never lie in this memory. So a caller that reads page after page may pass the same Into, and keep the keys
	// and values of earlier pages.
	Into []Row
	// Sift, if not nil, tells the store which part of the page the caller needs. The store passes the key and the value
	// of a row. The caller needs only the first keep bytes of the value. If pass > 0, the caller needs no further keys
	// that begin with the first pass bytes of the key. For example, a listing that shows all keys below photos/ as one
	// entry returns the pass 7 for the key photos/1. Sift is only for ascending slices.
	//
	// A store may ignore Sift, or call it once for each row of the page, in order, but perhaps not for the last rows.
	// Where the store has called Sift, the page omits the keys that the caller does not need. key and value are valid,
	// and must not be changed, until Sift returns.
	Sift func(key, value []byte) (pass, keep int)
}

// Page is the result of one call of Slice: rows in the order that the call asked for, and whether more rows may follow.
type Page struct {
	Rows []Row
	// More is true if the page ended at a limit, so that rows may follow the last row. More is never true for an empty
	// page. If More is false, the interval was read to its end. The number of rows does not show the end: a page of
	// exactly Limit rows may be the last page, and a store may end a page early if reading on would cost too much.
	More bool
}

// Rows has the methods of a store that write and read the rows of partitions. A partition is a set of rows under one
// partition key. Partitions need not be created: reading a partition without rows finds nothing.
//
// Of all writes to one key the write with the highest timestamp wins, in whatever order the writes arrive. At equal
// timestamps a delete beats a put, and of two puts the bytewise larger value wins. A removal or a delete hides the
// writes up to its own timestamp, also writes that arrive later.
//
// After a Timeout or Unavailable error a write may have been applied, in whole or not at all, or may be applied later
// (see OutcomeUnknown). Any other error means that nothing was done. All methods are safe for concurrent use.
type Rows interface {
	// Put writes rows into the partition p as one batch, each row under its own timestamp. A Slice shows either all
	// rows of the batch or none. If several rows have the same key, the same row wins as if they had been put one by
	// one. Put without rows does nothing.
	Put(ctx context.Context, p Partition, rows ...Row) error
	// Delete hides the row with the given key if the timestamp of the row is not above ts. Delete leaves a tombstone,
	// which readers do not see, and which also hides writes up to ts that arrive later.
	Delete(ctx context.Context, p Partition, key []byte, ts Timestamp) error
	// Get returns the row with the given key, including its timestamp. The bool is false if there is no such row.
	Get(ctx context.Context, p Partition, key []byte) (Row, bool, error)
	// Slice returns one page of the rows of the partition p whose keys are within the interval b.
	Slice(ctx context.Context, p Partition, b Bounds, o SliceOptions) (Page, error)
	// Remove hides every row within the interval b whose timestamp is not above ts, also rows that arrive later. With
	// zero Bounds it hides the rows of the whole partition, which is the cheapest form.
	Remove(ctx context.Context, p Partition, b Bounds, ts Timestamp) error
}

// EachQuorum is implemented by stores with replicas in several data centres. Its method EachQuorum returns an object
// with the same rows, whose reads and writes need a quorum of each data centre. Moves of rows between partitions use
// this object.
//
// Such a read repairs the replicas before it returns (BLOCKING read repair in Cassandra): a quorum of each data centre
// then has every row and tombstone that the read has found. So a later read in a single data centre finds them, too.
// Deletions of intervals of keys rely on this repair: after a read that finds an interval empty, all data centres have
// the tombstones.
type EachQuorum interface {
	EachQuorum() Rows
}

// PartitionLister is implemented by stores that can list their partitions. Verification uses the list to find
// partitions to which no bucket's map refers.
//
// The method Partitions returns a page of at most limit partitions, in an order that the store chooses. The parameter
// after is the last partition of the previous page (zero for the first page). An empty page is the end. A partition
// that is written during the listing may be missing. A partition whose rows are all hidden may be listed.
type PartitionLister interface {
	Partitions(ctx context.Context, after Partition, limit int) ([]Partition, error)
}

// Writable is implemented by stores that know whether they accept puts at present. The method Writable returns nil if
// the store accepts puts, else an error with the reason, e.g. a full disk.
type Writable interface {
	Writable() error
}

// Beats reports whether the write of value at the timestamp ts wins over the write of old at the timestamp oldTS. Both
// are writes of the same key; a nil value stands for a tombstone. The rules are:
//   - The higher timestamp wins.
//   - At equal timestamps a tombstone wins over a value.
//   - Of two values with equal timestamps, the bytewise larger value wins.
//
// If both writes are tombstones at the same timestamp, Beats returns true.
func Beats(ts Timestamp, value []byte, oldTS Timestamp, old []byte) bool {
	if ts != oldTS {
		return ts > oldTS
	}
	if value == nil || old == nil {
		return value == nil
	}
	return bytes.Compare(value, old) > 0
}
