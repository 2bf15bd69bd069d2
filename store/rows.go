package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
)

// BucketID identifies a bucket. The name of a bucket may be reused; its id is never reused.
type BucketID uuid.UUID

// String returns the canonical form of the UUID.
func (id BucketID) String() string { return uuid.UUID(id).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (id BucketID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *BucketID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// PartitionID identifies a partition: the rows under one partition key of the store. The id is a fresh random UUID and
// is never reused.
type PartitionID uuid.UUID

// String returns the canonical form of the UUID.
func (id PartitionID) String() string { return uuid.UUID(id).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (id PartitionID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *PartitionID) UnmarshalText(text []byte) error {
	if err := (*uuid.UUID)(id).UnmarshalText(text); err != nil {
		return fmt.Errorf("%q is not a partition's id: %w", text, err)
	}
	return nil
}

// IsZero reports whether the partition id is zero. The zero id means "no partition".
func (id PartitionID) IsZero() bool { return id == PartitionID{} }

// Partition is the address of one partition: its bucket and its id. The id alone would be unique. The bucket is part of
// the address (in Cassandra, of the partition key) so that a partition which no map names any more still shows its
// bucket.
type Partition struct {
	Bucket BucketID
	ID     PartitionID
}

// String returns the address as text: "bucket/partition".
func (p Partition) String() string { return p.Bucket.String() + "/" + p.ID.String() }

// PartitionBytes is the length in bytes of an encoded partition address: 16 for the id of the bucket, 16 for that of
// the partition.
const PartitionBytes = 32

// AppendTo appends the encoded address of the partition p to dst: the id of the bucket, then the id of the partition.
// It returns the longer slice.
func (p Partition) AppendTo(dst []byte) []byte {
	return append(append(dst, p.Bucket[:]...), p.ID[:]...)
}

// PartitionAt decodes the address of a partition from the first PartitionBytes bytes of b (see Partition.AppendTo). b
// may be longer, but not shorter.
func PartitionAt[B string | []byte](b B) (p Partition) {
	copy(p.ID[:], b[copy(p.Bucket[:], b):])
	return p
}

// Timestamp is the time of a write in microseconds since 1970 (UTC), chosen by the writer. A store orders the writes of
// a row by their timestamps, never by their arrival. A timestamp must be positive.
type Timestamp int64

// These limits of keys, values and batches hold for every store. They come from Cassandra. The limit of a value is well
// below Cassandra's limit of a mutation.
const (
	// MaxKeyBytes is the longest key of a row in bytes (Cassandra's limit of a clustering key).
	MaxKeyBytes = 65_535
	// MaxValueBytes is the longest value of a row in bytes (1 MiB). Clients set lower limits.
	MaxValueBytes = 1 << 20
	// MaxBatchRows is the most rows of one Put, MaxBatchBytes the most bytes of their keys and values together.
	MaxBatchRows  = 10_000
	MaxBatchBytes = 4 << 20
	// MaxPageRows is the most rows of one Slice. MaxPageBytes bounds the bytes of their keys and values together: a
	// page ends early, with More set, at the row that reaches this limit. MaxPageRows also bounds the pages of
	// enumerations.
	MaxPageRows  = 10_000
	MaxPageBytes = 4 << 20
	// MaxNodeBytes is the largest map node in bytes, MaxRecordBytes the largest register.
	MaxNodeBytes   = 4 << 20
	MaxRecordBytes = 64 << 10
)

// Row is one key with its value and the timestamp of the write that put it.
//
// Value is opaque to a store and never nil in a stored row. Its first byte says what the row is, such as an entry of a
// client or a deletion marker (see EntryCell). Rows that a store returns are read-only, and the rows of one page may
// share memory: clone a key or value that must outlive the page. A store neither keeps nor changes rows that are passed
// to it.
type Row struct {
	Key, Value []byte
	// Timestamp is always set by Get. Slice sets it only if SliceOptions.Timestamps asks for it; else it is zero.
	Timestamp Timestamp
}

// Bounds is an interval of keys, ordered bytewise. The zero Bounds contains every key.
type Bounds struct {
	// Start is the lower bound; an empty Start means minus infinity.
	Start []byte
	// StartExclusive excludes the key Start itself. (Start+"\x00" would do the same, but could be longer than
	// MaxKeyBytes.) It has no effect if Start is empty.
	StartExclusive bool
	// End is the upper bound, always exclusive; an empty End means plus infinity.
	End []byte
}

// Covers reports whether the interval b contains every key that the interval o contains.
func (b Bounds) Covers(o Bounds) bool {
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

// Within reports whether the interval b contains the key.
func Within[K string | []byte](key K, b Bounds) bool {
	if len(b.End) > 0 && string(key) >= string(b.End) {
		return false
	}
	if b.StartExclusive && len(b.Start) > 0 {
		return string(key) > string(b.Start)
	}
	return string(key) >= string(b.Start)
}

// PrefixEnd returns the end of the range of all keys that begin with prefix: the lowest key above all of them, in new
// memory. It returns nil if there is no such key, since prefix is empty or has only bytes 0xff. As the end of a range,
// nil means that there is no upper bound.
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

// SliceOptions are the options of one Slice, a read of rows in the order of their keys.
type SliceOptions struct {
	// Limit is the most rows of the page, 1 to MaxPageRows.
	Limit int
	// Bytes is the number of bytes of keys and values at which the page ends, with the row that reaches it. 0 or a
	// larger value than MaxPageBytes means MaxPageBytes.
	Bytes int
	// Reverse returns the highest keys first.
	Reverse bool
	// Timestamps asks for Row.Timestamp, which makes a read up to 15 % more expensive for Cassandra.
	Timestamps bool
	// Into is memory for Page.Rows, which overwrites Into from its beginning; it may be nil. Keys and values never lie
	// in this memory. So a caller that reads page after page may pass the same Into, and keep the keys and values of
	// earlier pages.
	Into []Row
	// Sift, if not nil, says what the caller needs of a row: only the first keep bytes of its value and, if pass > 0,
	// no further keys that begin with the first pass bytes of this key. Sift is only for ascending slices. A store may
	// ignore Sift, or call it once for each row of the page, in order, but perhaps not for the last ones. Where the
	// store has called it, the page omits the keys that need not be returned. key and value are valid, and must not be
	// changed, until Sift returns.
	Sift func(key, value []byte) (pass, keep int)
}

// PageBytes returns the largest size in bytes of a page that is read with the options o. It is the option Bytes, but at
// most MaxPageBytes; it is MaxPageBytes if Bytes is not positive.
func (o *SliceOptions) PageBytes() int {
	if o.Bytes <= 0 {
		return MaxPageBytes
	}
	return min(o.Bytes, MaxPageBytes)
}

// Page is the rows that one call of Slice has read, in the order that the call asked for.
type Page struct {
	Rows []Row
	// More means that the slice ended at a limit, and rows may follow the last one. More is never set on an empty page.
	// If More is false, the bounds were read to their end. The number of rows does not show the end: a page of exactly
	// Limit rows may be the last, and a store may end a page early if reading on would cost too much.
	More bool
}

// Rows is the part of a store that keeps the rows of partitions. Partitions need not be created: reading a partition
// without rows finds nothing.
//
// Of all writes to one key the one with the highest timestamp wins, in whatever order the writes arrive. At equal
// timestamps a delete beats a put, and of two puts the bytewise larger value wins. A removal or a delete covers the
// writes up to its own timestamp: a covered write stays invisible, also if it arrives later.
//
// After a Timeout or Unavailable error a write may have been applied, in whole or not at all, or may be applied later
// (OutcomeUnknown). Any other error means that nothing was done. So if work may still be under way when a method
// returns, its error is Timeout or Unavailable. All methods are safe for concurrent use.
type Rows interface {
	// Put writes rows into one partition as one batch, each row under its own timestamp: a Slice shows either all of
	// them or none. If several rows have one key, the same row wins as if they had been put one by one. Put without
	// rows does nothing.
	Put(ctx context.Context, p Partition, rows ...Row) error
	// Delete hides the row of key if the row is not newer than ts. It leaves a tombstone, which readers do not see and
	// which wins over late puts up to ts.
	Delete(ctx context.Context, p Partition, key []byte, ts Timestamp) error
	// Get returns one row with its timestamp, and false if there is no such row.
	Get(ctx context.Context, p Partition, key []byte) (Row, bool, error)
	// Slice returns one page of the rows of a partition within b.
	Slice(ctx context.Context, p Partition, b Bounds, o SliceOptions) (Page, error)
	// Remove hides every row within b that is not newer than ts, also rows that arrive later. With zero Bounds it hides
	// the rows of the whole partition, which is the cheapest form.
	Remove(ctx context.Context, p Partition, b Bounds, ts Timestamp) error
}

// EachQuorum is implemented by stores with replicas in several data centres. Its method EachQuorum returns the same
// rows, but their reads and writes need a quorum of each data centre. Moves of ranges use these rows.
//
// Such a read first repairs the replicas (BLOCKING read repair in Cassandra). Before it returns, a quorum of each data
// centre has every row and tombstone that the read has found in its range. So a later local read shows no less.
// Deletions of ranges rely on this: when they find a range empty, the tombstones that were on their way from another
// data centre have arrived.
type EachQuorum interface {
	EachQuorum() Rows
}

// Everywhere returns the rows of the store s at its widest consistency. If s implements EachQuorum (several data
// centres), reads and writes of these rows need a quorum of each data centre. Else Everywhere returns s itself.
func Everywhere(s Rows) Rows {
	if e, ok := s.(EachQuorum); ok {
		return e.EachQuorum()
	}
	return s
}

// PartitionLister is implemented by stores that can list their partitions. Verification finds orphaned partitions this
// way. The method Partitions returns a page of at most limit partitions, in an order that the store chooses. after is
// the last partition of the previous page (zero for the first page). An empty page is the end. A partition that is
// written during the listing may be missing, and a partition whose rows are all hidden may be listed.
type PartitionLister interface {
	Partitions(ctx context.Context, after Partition, limit int) ([]Partition, error)
}

// Writable is implemented by stores that know whether they accept puts at present. Its method Writable returns nil if
// they do, else an error with the reason.
type Writable interface {
	Writable() error
}

// DiskUsage is the size of a store's file system and how full it is, in bytes.
type DiskUsage struct {
	Total, Free uint64 // Free is the space that this process may use
	Reserve     uint64 // puts of clients are refused while less is free
	Store       uint64 // the size of the store's files
}

// OnDisk is implemented by stores that keep files on this machine. Its method Disk returns the size of the file system
// and how full it is. The second result is false if these numbers are not known, or after Close.
type OnDisk interface {
	Disk() (DiskUsage, bool)
}

// Beats applies last-write-wins to two writes of the same key. It reports whether the write of value with timestamp ts
// replaces the write of old with timestamp oldTS. A nil value stands for a tombstone. The higher timestamp wins. At
// equal timestamps a tombstone wins over a value, and of two values the bytewise larger one wins. Of two equal
// tombstones either may stay.
func Beats(ts Timestamp, value []byte, oldTS Timestamp, old []byte) bool {
	if ts != oldTS {
		return ts > oldTS
	}
	if value == nil || old == nil {
		return value == nil
	}
	return bytes.Compare(value, old) > 0
}

// CheckRows checks rows that are to be put as one batch. It returns an InvalidArgument error if a key, value or
// timestamp is invalid, or if the rows exceed MaxBatchRows or MaxBatchBytes. Else it returns nil.
func CheckRows(rows []Row) error {
	if len(rows) > MaxBatchRows {
		return Errorf(InvalidArgument, "a batch of %d rows: at most %d", len(rows), MaxBatchRows)
	}
	total := 0
	for i := range rows {
		r := &rows[i]
		if err := CheckKey(r.Key); err != nil {
			return err
		}
		if r.Value == nil {
			return Errorf(InvalidArgument, "row %q has a nil value", clip(r.Key))
		}
		if len(r.Value) > MaxValueBytes {
			return Errorf(InvalidArgument, "the value of %q has %d bytes: at most %d", clip(r.Key), len(r.Value), MaxValueBytes)
		}
		if err := CheckTimestamp(r.Timestamp); err != nil {
			return err
		}
		total += len(r.Key) + len(r.Value)
	}
	if total > MaxBatchBytes {
		return Errorf(InvalidArgument, "a batch of %d bytes: at most %d", total, MaxBatchBytes)
	}
	return nil
}

// CheckKey returns an InvalidArgument error if the key is empty or longer than MaxKeyBytes; else nil. The empty key is
// invalid since it stands for the unbounded end of a range.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return Errorf(InvalidArgument, "the key is empty")
	}
	if len(key) > MaxKeyBytes {
		return Errorf(InvalidArgument, "the key %q has %d bytes: at most %d", clip(key), len(key), MaxKeyBytes)
	}
	return nil
}

// CheckTimestamp returns an InvalidArgument error if the timestamp ts of a write is not positive; else nil.
func CheckTimestamp(ts Timestamp) error {
	if ts <= 0 {
		return Errorf(InvalidArgument, "timestamp %d is not positive", ts)
	}
	return nil
}

// CheckSlice checks the arguments of a slice, which reads the rows of one partition within the bounds b. It returns an
// InvalidArgument error if the bounds, or the row limit in o, are invalid; else nil.
func CheckSlice(b Bounds, o SliceOptions) error {
	if err := CheckLimit(o.Limit); err != nil {
		return err
	}
	return CheckBounds(b)
}

// CheckLimit checks the largest number of rows or partitions that a call asks for. It returns an InvalidArgument error
// unless limit is between 1 and MaxPageRows; else nil.
func CheckLimit(limit int) error {
	if limit < 1 || limit > MaxPageRows {
		return Errorf(InvalidArgument, "a limit of %d: 1 to %d", limit, MaxPageRows)
	}
	return nil
}

// CheckBounds checks the interval of keys b. It returns an InvalidArgument error if the start of b is above its end, or
// if either is longer than MaxKeyBytes; else nil.
func CheckBounds(b Bounds) error {
	if len(b.Start) > MaxKeyBytes || len(b.End) > MaxKeyBytes {
		return Errorf(InvalidArgument, "a bound has more than %d bytes", MaxKeyBytes)
	}
	if len(b.End) > 0 && string(b.Start) > string(b.End) {
		return Errorf(InvalidArgument, "the start %q is above the end %q", clip(b.Start), clip(b.End))
	}
	return nil
}

// clip returns a key as text for an error message, shortened to its first 64 bytes.
func clip(key []byte) string {
	const most = 64
	if len(key) <= most {
		return string(key)
	}
	return fmt.Sprintf("%s…", key[:most])
}
