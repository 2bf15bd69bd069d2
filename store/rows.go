package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
)

// BucketID identifies a bucket. The name of a bucket may be reused, its id never is.
type BucketID uuid.UUID

// String is the canonical UUID form.
func (id BucketID) String() string { return uuid.UUID(id).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (id BucketID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *BucketID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// PartitionID identifies the rows under one partition key of the store: a fresh random UUID
// that is never reused.
type PartitionID uuid.UUID

// String is the canonical UUID form.
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

// IsZero reports whether the id is zero: no partition.
func (id PartitionID) IsZero() bool { return id == PartitionID{} }

// Partition addresses one partition. The bucket is part of the address (and of the partition
// key in Cassandra), so that the owner of an orphaned partition is known.
type Partition struct {
	Bucket BucketID
	ID     PartitionID
}

// String is "bucket/partition".
func (p Partition) String() string { return p.Bucket.String() + "/" + p.ID.String() }

// PartitionBytes is the length of an encoded Partition.
const PartitionBytes = 32

// AppendTo appends the address to dst: the bucket, then the id.
func (p Partition) AppendTo(dst []byte) []byte {
	return append(append(dst, p.Bucket[:]...), p.ID[:]...)
}

// PartitionAt reads an address at the beginning of b, which has at least PartitionBytes.
func PartitionAt[B string | []byte](b B) (p Partition) {
	copy(p.ID[:], b[copy(p.Bucket[:], b):])
	return p
}

// Timestamp is the time of a write in microseconds since 1970 (UTC), as given by its writer.
// Rows are ordered by it, never by arrival. It must be positive.
type Timestamp int64

// Limits of the contract: those of Cassandra. The value limit is well below its limit of a
// mutation.
const (
	// MaxKeyBytes is the longest key of a row (Cassandra's clustering limit).
	MaxKeyBytes = 65_535
	// MaxValueBytes is the longest value of a row (1 MiB). Clients set lower limits.
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
// Value is opaque to a store and never nil in a stored row; its first byte is the kind (see
// EntryCell). Rows returned by a store are read-only, and those of one page may share
// memory: clone what must outlive the page. A store does not keep or change rows that are
// passed to it.
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

// Covers reports whether every key within o lies within b.
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

// Within reports whether key lies within b.
func Within[K string | []byte](key K, b Bounds) bool {
	if len(b.End) > 0 && string(key) >= string(b.End) {
		return false
	}
	if b.StartExclusive && len(b.Start) > 0 {
		return string(key) > string(b.Start)
	}
	return string(key) >= string(b.Start)
}

// PrefixEnd returns the lowest key above every key that begins with prefix, in
// new memory, or nil (plus infinity) where there is none.
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

// SliceOptions are the options of one Slice.
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
	// Into is memory that Page.Rows may reuse from its beginning; its content is
	// overwritten. It may be nil. Keys and values never lie in it, so a caller that reads
	// page after page may reuse it and keep them.
	Into []Row
	// Sift, if not nil, says what the caller has use for: of the row's value the first keep bytes
	// and, unless pass is 0, none of the keys behind it that begin with its first pass bytes. It is for
	// ascending slices. A store calls it, if at all, once for each row of the page, in order, but perhaps not
	// for the last ones; after a call it leaves out the keys that are passed over. Key and value are valid,
	// and not to be changed, until it returns.
	Sift func(key, value []byte) (pass, keep int)
}

// PageBytes is the byte limit of a slice.
func (o *SliceOptions) PageBytes() int {
	if o.Bytes <= 0 {
		return MaxPageBytes
	}
	return min(o.Bytes, MaxPageBytes)
}

// Page is the result of one Slice, in the requested order.
type Page struct {
	Rows []Row
	// More means that the slice ended at a limit, and there may be rows beyond the last
	// one. It is never set on an empty page. Without it the bounds were read to their end.
	// The number of rows says nothing: a page of exactly the limit may be the last, and a
	// store may end a page early where reading on would cost too much.
	More bool
}

// Rows are the data of partitions. Partitions need not be created: reading one without rows
// finds nothing.
//
// Of all writes to one key the one with the highest timestamp wins, whatever
// the order of arrival. At equal timestamps a delete beats a put, and of two
// puts the bytewise larger value wins. A write that a removal or a delete of a
// higher or equal timestamp covers stays invisible, also if it arrives later.
//
// A method that fails with Timeout or Unavailable may have been applied, in
// whole or not at all, or may be applied later (OutcomeUnknown); any other
// error means that nothing was done. So an error is Timeout or Unavailable if work may
// still be under way when the method returns. All methods are safe for concurrent use.
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

// EachQuorum is implemented by stores with replicas in several data centres. It returns rows
// that are read and written through a quorum of each data centre. Movers use it.
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

// PartitionLister is implemented by stores that can enumerate partitions, by which
// verification finds orphans. Pages are in the order of the store; after is the last
// partition of the previous page (zero for the first). The end is an empty page. A partition
// written during the enumeration may be missing; one whose rows are all hidden may be
// listed.
type PartitionLister interface {
	Partitions(ctx context.Context, after Partition, limit int) ([]Partition, error)
}

// Writable is implemented by stores that know whether they accept puts at present: it
// returns nil, or the reason why not.
type Writable interface {
	Writable() error
}

// DiskUsage is how full the file system of a store is, in bytes.
type DiskUsage struct {
	Total, Free uint64 // Free is what this process may use
	Reserve     uint64 // entries are refused while less is free
	Store       uint64 // of the store's files
}

// OnDisk is implemented by stores that keep files on this machine. Disk returns false where the usage is not known, or
// after Close.
type OnDisk interface {
	Disk() (DiskUsage, bool)
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

// CheckRows refuses rows that can't be put in one batch.
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

// CheckKey refuses the empty key, which stands for an unbounded end of a range, and keys
// above MaxKeyBytes.
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

// CheckSlice refuses invalid options and bounds.
func CheckSlice(b Bounds, o SliceOptions) error {
	if err := CheckLimit(o.Limit); err != nil {
		return err
	}
	return CheckBounds(b)
}

// CheckLimit refuses limits, of slices and enumerations, that are out of range.
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

// clip shortens a key for an error message.
func clip(key []byte) string {
	const most = 64
	if len(key) <= most {
		return string(key)
	}
	return fmt.Sprintf("%s…", key[:most])
}
