package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
)

// Table is a fixed family of registers. A register is a small record that changes only by compare-and-swap. The family
// Roots, for example, has one register per bucket. Over Cassandra each family is a table of the database.
type Table uint8

const (
	// Roots has one record per bucket: the root of the map that says which partition holds which keys of the bucket.
	// The key is the 16 bytes of the BucketID. Records are never removed. A swap keeps the record that it replaces (see
	// Registers.History).
	Roots Table = iota + 1
	// Directory has one record per bucket name. Records are never removed. When a bucket is deleted, the record says
	// that the name is free, and the epoch of the record goes on growing.
	Directory
	// Clocks has the map clocks. A map clock is a counter that many buckets share, and that is raised after every
	// change of one of their maps. The key is the number of the clock.
	Clocks
	// Busy has one record: a list of the buckets whose rows may be moving between partitions. The list is only a hint.
	Busy
	// Process has records that processes keep across restarts: the leader, the highest timestamp that an embedded
	// source of timestamps may give out, the progress of deletions of large buckets, the last audit of bodies, and
	// whether the storage of the bodies was marked.
	Process
)

var tableNames = [...]string{"", "roots", "directory", "clocks", "busy", "process"}

// Tables returns all families of registers (records that change only by compare-and-swap), in the order of their
// numbers.
func Tables() []Table { return []Table{Roots, Directory, Clocks, Busy, Process} }

func (t Table) String() string {
	if t >= Roots && t <= Process {
		return tableNames[t]
	}
	return "unknown table"
}

// Level is the consistency of a read of a register (a small record that changes only by compare-and-swap). The levels
// are Local, which is cheap, and Serial, which always returns the newest version.
type Level uint8

const (
	// Local reads from a quorum of the local data centre. The read never returns an older version than an earlier read
	// at this level (BLOCKING read repair), but it may miss a recent swap of another data centre.
	Local Level = iota
	// Serial reads the newest decided version. If a swap is pending, the read finishes the swap first.
	Serial
)

// Token is a random value that marks one version of a register, a record that changes only by compare-and-swap. If the
// outcome of a swap is unknown, the caller reads the register. By the token it recognises its own version.
type Token uuid.UUID

// NewToken returns a fresh random token, which the caller puts into the next version of a record before a
// compare-and-swap.
func NewToken() Token { return Token(uuid.New()) }

// Version identifies one state of a register, a record that changes only by compare-and-swap. A caller of Swap passes
// the version that it has read. The swap fails if the register has changed since. The zero Version means that the
// register does not exist.
type Version struct {
	// Epoch is the number of swaps that led to this version. The first version has the epoch 1.
	Epoch uint64
	Token Token
}

// Record is the state of a register, which changes only by compare-and-swap: its version and its content. Blob, the
// content, is opaque to the store. The encoding inside the blob repeats the epoch and the token, so that a reader
// detects a torn read. The caller owns the blob of a record that a store returns. A store does not keep a blob that a
// caller passes.
type Record struct {
	Version
	Blob []byte
}

// AppendTo appends the encoded record to dst and returns the extended slice. The encoding is the epoch (8 bytes,
// big-endian), the token (16 bytes) and the blob.
func (r Record) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Epoch)
	return append(append(dst, r.Token[:]...), r.Blob...)
}

// DecodeRecord decodes a register's record from b, which Record.AppendTo has encoded. The blob of the record is a copy.
// The result ok is false if b is too short.
func DecodeRecord(b []byte) (r Record, ok bool) {
	const head = 8 + len(r.Token)
	if len(b) < head {
		return r, false
	}
	r.Epoch = binary.BigEndian.Uint64(b)
	r.Token = Token(b[8:head])
	r.Blob = append([]byte{}, b[head:]...)
	return r, true
}

// RegisterName is the address of a register (a record that changes only by compare-and-swap): its table and its key.
// The type exists for error messages, which show the address as text.
type RegisterName struct {
	Table Table
	Key   []byte
}

func (n RegisterName) String() string {
	if id, err := uuid.FromBytes(n.Key); err == nil {
		return n.Table.String() + " " + id.String()
	}
	return fmt.Sprintf("%s %.64q", n.Table, n.Key)
}

// NodeName is the address of one node of a bucket's map: the bucket and the id of the node. The type exists for error
// messages, which show the address as text.
type NodeName struct {
	Bucket BucketID
	ID     NodeID
}

func (n NodeName) String() string { return n.Bucket.String() + "/" + n.ID.String() }

// Registers has the methods of a store that read and change its registers. A register is a small record, with a table
// and a key as its address, that changes only by compare-and-swap. All methods are safe for concurrent use.
type Registers interface {
	// Read returns the record with the given key in table t, at the consistency level l. Read fails with NotFound if
	// there is no record.
	Read(ctx context.Context, t Table, key []byte, l Level) (Record, error)
	// Swap replaces the record with the given key in table t by next if the record is still at version old. A zero old
	// means that the record does not exist yet. next.Epoch must be old.Epoch+1 and the token of next must be fresh;
	// else Swap fails with InvalidArgument.
	//
	// Conflict means that the record was at another version; this swap will never be applied. After any other error,
	// Unavailable included, the swap may have been applied, or may be applied later (see OutcomeUnknown). Only a later
	// version, read at the level Serial, proves that the swap will not be applied.
	Swap(ctx context.Context, t Table, key []byte, old Version, next Record) error
	// Scan returns a page of at most limit keys of the table t, in an order that the store chooses. The parameter after
	// is the last key of the previous page (nil for the first page). An empty page is the end of the table; a short
	// page is not. A record that is created during the enumeration may be missing.
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
	// History returns up to limit earlier records of the root of the bucket with the given id, which later swaps have
	// replaced, newest first. The records returned have an epoch below before; if before is 0, records of all epochs
	// are returned.
	History(ctx context.Context, id BucketID, before uint64, limit int) ([]Record, error)
	// Forget deletes the earlier records of the root of the bucket with the given id (see History) that have an epoch
	// below before.
	Forget(ctx context.Context, id BucketID, before uint64) error
}

// Acknowledger is implemented by stores with several replicas. The method Acknowledge returns the newest decided record
// with the given key in table t, a record that changes only by compare-and-swap. After Acknowledge has returned, every
// Read of that record at the level Local, in any data centre, finds the same record or a later one. Acknowledge fails
// like Read. In a store that does not implement Acknowledger, a Read at the level Serial has the same effect.
type Acknowledger interface {
	Acknowledge(ctx context.Context, t Table, key []byte) (Record, error)
}

// NodeID identifies one node of a bucket's map, which says which partition holds which keys. A node is an immutable
// block of the map, written once. The id is a fresh random UUID.
type NodeID uuid.UUID

// String returns the UUID in its canonical form, e.g. "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".
func (id NodeID) String() string { return uuid.UUID(id).String() }

// MarshalText returns the canonical text of the UUID, for JSON and other encoders. It implements
// encoding.TextMarshaler.
func (id NodeID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText sets the id from the text of a UUID, and fails if the text is not a UUID. It implements
// encoding.TextUnmarshaler.
func (id *NodeID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// Nodes has the methods of a store that write and read the nodes of buckets' maps. A node is an immutable block of the
// map that says which partition holds which keys. A node is written once, before the root record that refers to it.
// Wherever that root can be read, the node can be read, too. All methods are safe for concurrent use.
type Nodes interface {
	// WriteNode stores blob under the given id, as one node of the map of bucket b. Writing the same bytes again is
	// harmless.
	WriteNode(ctx context.Context, b BucketID, id NodeID, blob []byte) error
	// Node returns the bytes of the node with the given id of the map of bucket b. The caller owns the bytes. Node
	// fails with NotFound if the store has no such node.
	Node(ctx context.Context, b BucketID, id NodeID) ([]byte, error)
	// DeleteNode deletes the node with the given id of the map of bucket b. Deleting a node that does not exist is no
	// error.
	DeleteNode(ctx context.Context, b BucketID, id NodeID) error
	// ScanNodes returns a page of at most limit ids of the nodes of the map of bucket b. The parameter after is the
	// last id of the previous page (zero for the first page). An empty page is the end; a short page is not.
	ScanNodes(ctx context.Context, b BucketID, after NodeID, limit int) ([]NodeID, error)
}

// Store has all methods of a store: those for rows of partitions, for registers (records that change only by
// compare-and-swap) and for nodes of buckets' maps. Code that uses a store declares a smaller interface with only the
// methods that it needs.
type Store interface {
	Rows
	Registers
	Nodes
	// Close ends all background work of the store. Later calls of any method fail with Unavailable, and calls under way
	// may fail so, too. Closing a store again does nothing.
	Close() error
}

// CheckRecord checks the arguments of a compare-and-swap that replaces the version old of the record with the given key
// in table t by next. CheckRecord returns an InvalidArgument error in these cases, else nil:
//   - The table, the key or the old version is invalid.
//   - The epoch of next does not follow that of old, or next has no fresh token.
//   - The blob of next is longer than MaxRecordBytes.
func CheckRecord(t Table, key []byte, old Version, next Record) error {
	if err := CheckRegister(t, key); err != nil {
		return err
	}
	if (old.Epoch == 0) != (old.Token == Token{}) {
		return Errorf(
			InvalidArgument, "a swap from epoch %d with token %s: absent has neither", old.Epoch, uuid.UUID(old.Token),
		)
	}
	if next.Epoch != old.Epoch+1 {
		return Errorf(InvalidArgument, "a swap from epoch %d to %d", old.Epoch, next.Epoch)
	}
	if (next.Token == Token{}) || next.Token == old.Token {
		return Errorf(InvalidArgument, "a swap without a fresh token")
	}
	if len(next.Blob) > MaxRecordBytes {
		return Errorf(InvalidArgument, "a record of %d bytes: at most %d", len(next.Blob), MaxRecordBytes)
	}
	return nil
}

// CheckRegister checks the address of a register (a record that changes only by compare-and-swap). CheckRegister
// returns an InvalidArgument error if the table t does not exist or the key is invalid for the table; else nil. A key
// of the table Roots, for example, must have the 16 bytes of a bucket id.
func CheckRegister(t Table, key []byte) error {
	if err := CheckTable(t); err != nil {
		return err
	}
	if t == Roots && len(key) != len(BucketID{}) {
		return Errorf(InvalidArgument, "a root's key of %d bytes: it is a bucket id", len(key))
	}
	return CheckKey(key)
}

// CheckTable returns an InvalidArgument error if t is not one of the tables of registers, which are records that change
// only by compare-and-swap. Else CheckTable returns nil.
func CheckTable(t Table) error {
	if t < Roots || t > Process {
		return Errorf(InvalidArgument, "there is no register table %d", t)
	}
	return nil
}

// CheckNode returns an InvalidArgument error if blob, the encoded node of a bucket's map, is empty or longer than
// MaxNodeBytes. Else CheckNode returns nil.
func CheckNode(blob []byte) error {
	if len(blob) == 0 || len(blob) > MaxNodeBytes {
		return Errorf(InvalidArgument, "a node of %d bytes: 1 to %d", len(blob), MaxNodeBytes)
	}
	return nil
}
