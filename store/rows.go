package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
)

// BucketID names a bucket for ever; the bucket's name may be freed and used
// again, its id never is.
type BucketID uuid.UUID

// String is the canonical UUID form.
func (id BucketID) String() string { return uuid.UUID(id).String() }

// PartitionID names the rows stored under one store partition key. It is a
// fresh random UUID and is never used again, so a partition has no past.
type PartitionID uuid.UUID

// String is the canonical UUID form.
func (id PartitionID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether the id names no partition.
func (id PartitionID) IsZero() bool { return id == PartitionID{} }

// Partition addresses one partition. The bucket is part of the address (and of
// the partition key in Cassandra), so that a stray partition tells whose it was.
type Partition struct {
	Bucket BucketID
	ID     PartitionID
}

// String is "bucket/partition".
func (p Partition) String() string { return p.Bucket.String() + "/" + p.ID.String() }

// Timestamp is a write's time in microseconds since 1970 (UTC), as given by its
// writer; rows are ordered by it, never by arrival. Valid ones are positive.
type Timestamp int64

// Limits of the contract. They are Cassandra's, with the value limit chosen
// well under its mutation limit.
const (
	// MaxKeyBytes is the longest key of a row (Cassandra's clustering limit).
	MaxKeyBytes = 65_535
	// MaxValueBytes is the longest stored value of a row (1 MiB). Clients set
	// tighter limits of their own.
	MaxValueBytes = 1 << 20
	// MaxBatchRows and MaxBatchBytes (keys and values together) bound one Put.
	MaxBatchRows  = 10_000
	MaxBatchBytes = 4 << 20
	// MaxPageRows and MaxPageBytes (keys and values together) bound one Slice.
	// A page ends early, with More set, at the row that reaches the byte limit.
	// MaxPageRows also bounds the pages of enumerations.
	MaxPageRows  = 10_000
	MaxPageBytes = 4 << 20
	// MaxNodeBytes is the largest map node; MaxRecordBytes the largest register.
	MaxNodeBytes   = 4 << 20
	MaxRecordBytes = 64 << 10
)

// Row is one key with its value and the timestamp of the write that put it.
//
// Value is opaque to a store and never nil in a stored row; its first byte is
// the kind (see Cell). Rows handed out by a store are read-only, and those of
// one page may share memory: clone what must outlive the page. Rows handed to a
// store are not kept after the call returns, nor changed.
type Row struct {
	Key, Value []byte
	// Timestamp is always set by Get; by Slice only when asked for, else zero.
	Timestamp Timestamp
}

// Bounds is an interval of keys, ordered bytewise. The zero Bounds is every key.
type Bounds struct {
	// Start is the lower bound; empty is minus infinity.
	Start []byte
	// StartExclusive leaves Start itself out. (It is not written as Start+"\x00"
	// because that could pass MaxKeyBytes.) It means nothing when Start is empty.
	StartExclusive bool
	// End is the upper bound, always exclusive; empty is plus infinity.
	End []byte
}

// SliceOptions says what one Slice reads.
type SliceOptions struct {
	// Limit is the most rows to return, 1 to MaxPageRows.
	Limit int
	// Bytes ends the page at the row with which keys and values reach so many; 0, or
	// more than that: MaxPageBytes.
	Bytes int
	// Reverse returns the highest keys first.
	Reverse bool
	// Timestamps asks for Row.Timestamp, which costs Cassandra up to 15 %.
	Timestamps bool
	// Into is memory of the caller's that Page.Rows may lie in, from its beginning,
	// whatever it held; nil is fine. It is for those who read page after page and keep
	// keys and values only: these never lie in it.
	Into []Row
}

// PageBytes is the byte limit of a slice.
func (o *SliceOptions) PageBytes() int {
	if o.Bytes <= 0 {
		return MaxPageBytes
	}
	return min(o.Bytes, MaxPageBytes)
}

// Page is what one Slice read, in the order asked for.
type Page struct {
	Rows []Row
	// More says that the slice ended at a limit: there may be rows beyond the
	// last one. It is never set on an empty page. When it is false the bounds
	// were read to their end. It alone says so, not the number of rows: a page
	// of exactly the limit may be the last, and a store may end one earlier
	// where reading on would cost too much.
	More bool
}

// Rows is the data of partitions. A partition exists as soon as it holds a row;
// reading one that holds none finds nothing and is no error.
//
// Of all writes to one key the one with the highest timestamp wins, whatever
// the order of arrival. At equal timestamps a delete beats a put, and of two
// puts the bytewise larger value wins. A write that a removal or a delete of a
// higher or equal timestamp covers stays invisible, also if it arrives later.
//
// A method that fails with Timeout or Unavailable may have been applied, in
// whole or not at all, or may be applied later (OutcomeUnknown); any other
// error means that nothing was done. All methods are safe for concurrent use.
// A method may return before ctx's end with its work still under way only if
// it says so by such an error.
type Rows interface {
	// Put writes rows into one partition as one batch, each under its own
	// timestamp: no Slice shows some of them and not yet the others. Of several
	// rows with one key the winner is found as if they had been put one by one.
	// Without rows nothing is done.
	Put(ctx context.Context, p Partition, rows ...Row) error
	// Delete hides the row of key if it is not newer than ts. The tombstone is
	// invisible to readers but wins over late puts up to ts.
	Delete(ctx context.Context, p Partition, key []byte, ts Timestamp) error
	// Get reads one row, with its timestamp; false means that there is none.
	Get(ctx context.Context, p Partition, key []byte) (Row, bool, error)
	// Slice reads one page of one partition.
	Slice(ctx context.Context, p Partition, b Bounds, o SliceOptions) (Page, error)
	// Remove hides every row within b that is not newer than ts, and every such
	// row that arrives later. With zero Bounds it is the cheapest: the whole
	// partition.
	Remove(ctx context.Context, p Partition, b Bounds, ts Timestamp) error
}

// EachQuorum is the optional power of a store that has replicas in several data
// centres: rows read and written through a quorum of each one. Movers use it.
type EachQuorum interface {
	EachQuorum() Rows
}

// Everywhere returns the rows of s at the widest consistency that it has.
func Everywhere(s Rows) Rows {
	if e, ok := s.(EachQuorum); ok {
		return e.EachQuorum()
	}
	return s
}

// PartitionLister is the optional power to enumerate partitions (fsck needs it
// to find orphans). Pages are in the store's own order; after is the last
// partition of the page before (zero for the first), and an empty page ends it.
// A partition written during the enumeration may be missing; one whose rows are
// all hidden may be listed.
type PartitionLister interface {
	Partitions(ctx context.Context, after Partition, limit int) ([]Partition, error)
}

// Writable is the optional power of a store that knows without trying whether it
// takes puts at present: nil, or why it refuses them.
type Writable interface {
	Writable() error
}

// Beats is last-write-wins: it reports whether a write of value at timestamp ts takes
// the place of the write of old at timestamp oldTS to the same key. A nil value is a
// tombstone. The higher timestamp wins; at a tie a tombstone, then the bytewise larger
// value. Of two equal tombstones either may stay.
func Beats(ts Timestamp, value []byte, oldTS Timestamp, old []byte) bool {
	if ts != oldTS {
		return ts > oldTS
	}
	if value == nil || old == nil {
		return value == nil
	}
	return bytes.Compare(value, old) > 0
}

// CheckRows reports the first reason why rows may not be put in one batch.
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

// CheckKey refuses keys that no store takes: the empty one (a range's unbounded
// end is written so) and those above MaxKeyBytes.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return Errorf(InvalidArgument, "the key is empty")
	}
	if len(key) > MaxKeyBytes {
		return Errorf(InvalidArgument, "the key %q has %d bytes: at most %d", clip(key), len(key), MaxKeyBytes)
	}
	return nil
}

// CheckTimestamp refuses timestamps that are not positive.
func CheckTimestamp(ts Timestamp) error {
	if ts <= 0 {
		return Errorf(InvalidArgument, "timestamp %d is not positive", ts)
	}
	return nil
}

// CheckSlice refuses options out of range and bounds whose start is above
// their end.
func CheckSlice(b Bounds, o SliceOptions) error {
	if err := CheckLimit(o.Limit); err != nil {
		return err
	}
	return CheckBounds(b)
}

// CheckLimit refuses limits out of range, of slices and enumerations alike.
func CheckLimit(limit int) error {
	if limit < 1 || limit > MaxPageRows {
		return Errorf(InvalidArgument, "a limit of %d: 1 to %d", limit, MaxPageRows)
	}
	return nil
}

// CheckBounds refuses bounds whose start is above their end, and oversized ones.
func CheckBounds(b Bounds) error {
	if len(b.Start) > MaxKeyBytes || len(b.End) > MaxKeyBytes {
		return Errorf(InvalidArgument, "a bound has more than %d bytes", MaxKeyBytes)
	}
	if len(b.End) > 0 && string(b.Start) > string(b.End) {
		return Errorf(InvalidArgument, "the start %q is above the end %q", clip(b.Start), clip(b.End))
	}
	return nil
}

// clip keeps error messages short whatever the key's length.
func clip(key []byte) string {
	const most = 64
	if len(key) <= most {
		return string(key)
	}
	return fmt.Sprintf("%s…", key[:most])
}
