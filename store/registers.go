package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/google/uuid"
)

// Table is one of the fixed families of registers, such as the roots of the buckets' maps. A register is a small record
// that changes only by compare-and-swap. Over Cassandra each family is a table of its own.
type Table uint8

const (
	// Roots has one record per bucket: the root of the bucket's map. Its key is the 16 bytes of the BucketID. Records
	// are never removed. A swap keeps the record that it replaces (see Registers.History).
	Roots Table = iota + 1
	// Directory has one record per bucket name. Records are never removed: the record of a name that is free says that
	// the name is free, and its epoch goes on growing.
	Directory
	// Clocks has the map clocks. The key is the number of the clock.
	Clocks
	// Busy has hints: the buckets that may have a move under way.
	Busy
	// Process has records that processes keep across restarts: the leader, the ceiling of an embedded source of
	// timestamps, the progress of deletions of large buckets, the last audit of bodies, and whether the place of the
	// bodies was marked.
	Process
)

var tableNames = [...]string{"", "roots", "directory", "clocks", "busy", "process"}

// Tables returns every table of registers.
func Tables() []Table { return []Table{Roots, Directory, Clocks, Busy, Process} }

func (t Table) String() string {
	if t >= Roots && t <= Process {
		return tableNames[t]
	}
	return "unknown table"
}

// Level is the consistency of a read of a register, a small record that changes only by compare-and-swap.
type Level uint8

const (
	// Local reads through a quorum of the local data centre. It never returns an older version than an earlier read at
	// this level (BLOCKING read repair), but it may miss a recent swap of another data centre.
	Local Level = iota
	// Serial reads the newest decided version, after it has finished any pending swap.
	Serial
)

// Token is a random value that marks one version of a register, a record that changes only by compare-and-swap. If the
// outcome of a swap is unknown, the caller reads the register and recognises its own version by the token.
type Token uuid.UUID

// NewToken returns a fresh random token.
func NewToken() Token { return Token(uuid.New()) }

// Version identifies one state of a register, a record that changes only by compare-and-swap. The zero Version means
// that the register does not exist.
type Version struct {
	// Epoch is the number of swaps of the register until this version; the first version has 1.
	Epoch uint64
	Token Token
}

// Record is the state of a register, which changes only by compare-and-swap: its version and its content. Blob, the
// content, is opaque to the store. The encoding inside the blob repeats the epoch and the token, so that a reader
// detects a torn read. The caller owns the blob of a record that a store returns. A store does not keep a blob that is
// passed to it.
type Record struct {
	Version
	Blob []byte
}

// AppendTo appends the encoded record to dst and returns the longer slice. The encoding is the epoch (8 bytes,
// big-endian), the token (16 bytes) and the blob.
func (r Record) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Epoch)
	return append(append(dst, r.Token[:]...), r.Blob...)
}

// DecodeRecord decodes the bytes b, which Record.AppendTo has encoded, into a register's record. ok is false if b is
// too short. The blob of the record is a copy.
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

// RegisterName is the table and the key of a register (a record that changes only by compare-and-swap). Error messages
// show it as text.
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

// NodeName is the address of a node of a bucket's map: the bucket and the id of the node. Error messages show it as
// text.
type NodeName struct {
	Bucket BucketID
	ID     NodeID
}

func (n NodeName) String() string { return n.Bucket.String() + "/" + n.ID.String() }

// Registers are small records that change only by compare-and-swap. The interface has the methods that read and change
// them. All methods are safe for concurrent use.
type Registers interface {
	// Read returns the record of a register, or fails with NotFound.
	Read(ctx context.Context, t Table, key []byte, l Level) (Record, error)
	// Swap replaces the record of a register if the register is still at version old (zero: it does not exist).
	// next.Epoch must be old.Epoch+1 and the token of next must be fresh; else Swap fails with InvalidArgument.
	// Conflict means that the register was at another version; this swap will never be applied. After any other error,
	// Unavailable included, the swap may have been applied, or may be applied later (OutcomeUnknown). Only a later
	// version, read at Serial, proves that the swap will not be applied.
	Swap(ctx context.Context, t Table, key []byte, old Version, next Record) error
	// Scan returns a page of at most limit keys of a table, in the order of the store. after is the last key of the
	// previous page (nil for the first page). An empty page is the end; a short page is not. A record that is created
	// during the enumeration may be missing.
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
	// History returns up to limit records of a root that later swaps have replaced, newest first. It returns only
	// records with an epoch below before; before 0 returns all epochs.
	History(ctx context.Context, id BucketID, before uint64, limit int) ([]Record, error)
	// Forget deletes the replaced records of a root that have an epoch below before.
	Forget(ctx context.Context, id BucketID, before uint64) error
}

// Acknowledger is implemented by stores with several replicas. Its method Acknowledge returns the newest decided record
// of a register, which changes only by compare-and-swap. After it has returned, every Read of the register at the level
// Local, in any data centre, finds that record or a later one. Acknowledge fails like Read. With a store that does not
// implement Acknowledger, a Read at the level Serial has the same effect.
type Acknowledger interface {
	Acknowledge(ctx context.Context, t Table, key []byte) (Record, error)
}

// Acknowledge returns the newest decided record of the register with the given key in table t. After it has returned,
// reads of the register at the level Local find that record or a later one, in any data centre. If s does not implement
// Acknowledger, the function reads the record at the level Serial.
func Acknowledge(ctx context.Context, s Registers, t Table, key []byte) (Record, error) {
	if a, ok := s.(Acknowledger); ok {
		return a.Acknowledge(ctx, t, key)
	}
	return s.Read(ctx, t, key, Serial)
}

// NodeID identifies one node of a bucket's map. A node is an immutable part of the map: an index node or a segment. The
// id is a fresh random UUID.
type NodeID uuid.UUID

// String returns the canonical form of the UUID.
func (id NodeID) String() string { return uuid.UUID(id).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (id NodeID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *NodeID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// Nodes are the methods of a store that write and read the nodes of buckets' maps. A node is an immutable part of a
// map. It is written once, before the root that names it. Wherever that root can be read, the node can be read, too.
// All methods are safe for concurrent use.
type Nodes interface {
	// WriteNode stores the node blob of bucket b. Writing the same bytes again is harmless.
	WriteNode(ctx context.Context, b BucketID, id NodeID, blob []byte) error
	// Node returns the bytes of a node, which the caller owns, or fails with NotFound.
	Node(ctx context.Context, b BucketID, id NodeID) ([]byte, error)
	// DeleteNode deletes a node. It returns no error if the node does not exist.
	DeleteNode(ctx context.Context, b BucketID, id NodeID) error
	// ScanNodes returns a page of at most limit ids of the nodes of a bucket, as Registers.Scan does for keys.
	ScanNodes(ctx context.Context, b BucketID, after NodeID, limit int) ([]NodeID, error)
}

// Store has all methods that a store must have: those for rows, for registers and for nodes of maps. Code that uses a
// store declares the smaller interface that it needs.
type Store interface {
	Rows
	Registers
	Nodes
	// Close ends all background work. Later calls fail with Unavailable, and calls under way may fail with it. Closing
	// again does nothing.
	Close() error
}

// CheckRecord checks the arguments of a compare-and-swap of the register with the given key in table t. It returns an
// InvalidArgument error in these cases: the table, the key or the old version is invalid, next has no fresh token, or
// its blob is longer than MaxRecordBytes. Else it returns nil.
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

// CheckRegister checks the address of a register (a record that changes only by compare-and-swap). It returns an
// InvalidArgument error if the table t does not exist or the key is invalid for the table; else nil.
func CheckRegister(t Table, key []byte) error {
	if err := CheckTable(t); err != nil {
		return err
	}
	if t == Roots && len(key) != len(BucketID{}) {
		return Errorf(InvalidArgument, "a root's key of %d bytes: it is a bucket id", len(key))
	}
	return CheckKey(key)
}

// CheckTable returns an InvalidArgument error if t is none of the known tables of registers (records that change only
// by compare-and-swap); else nil.
func CheckTable(t Table) error {
	if t < Roots || t > Process {
		return Errorf(InvalidArgument, "there is no register table %d", t)
	}
	return nil
}

// CheckNode returns an InvalidArgument error if blob, the encoded node of a bucket's map, is empty or longer than
// MaxNodeBytes; else nil.
func CheckNode(blob []byte) error {
	if len(blob) == 0 || len(blob) > MaxNodeBytes {
		return Errorf(InvalidArgument, "a node of %d bytes: 1 to %d", len(blob), MaxNodeBytes)
	}
	return nil
}

// Scanner is a store that can list the keys of its registers, which are its records that change only by
// compare-and-swap. It has only the method of Registers that KeyPages calls.
type Scanner interface {
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
}

// KeyPages returns an iterator over the keys of all registers in table t, in pages of up to 1000 keys. If a page can't
// be read, the iterator yields the error instead. If the loop goes on after an error, and ctx has not ended, the
// iterator reads the same page again.
func KeyPages(ctx context.Context, s Scanner, t Table) iter.Seq2[[][]byte, error] {
	const page = 1000
	return func(yield func([][]byte, error) bool) {
		var after []byte
		for {
			keys, err := s.Scan(ctx, t, after, page)
			if err == nil && len(keys) == 0 || !yield(keys, err) || err != nil && ctx.Err() != nil {
				return
			}
			if err == nil {
				after = keys[len(keys)-1]
			}
		}
	}
}
