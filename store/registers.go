package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/google/uuid"
)

// Table is a family of registers, a table of its own in Cassandra.
type Table uint8

const (
	// Roots has one record per bucket, by the 16 bytes of its BucketID. Records are never
	// removed. A swap keeps the record that it replaces (see Registers.History).
	Roots Table = iota + 1
	// Directory has one record per bucket name. Records are never removed: that of a free
	// name says so, and its epoch goes on growing.
	Directory
	// Clocks has the map clocks, by number.
	Clocks
	// Busy is a hint: the buckets that may have a move in flight.
	Busy
	// Process has what processes keep across restarts: the leader record, the ceiling of
	// an embedded timestamp source, how far the deletions of large buckets have come, the last audit of bodies.
	Process
)

var tableNames = [...]string{"", "roots", "directory", "clocks", "busy", "process"}

// Tables lists every table.
func Tables() []Table { return []Table{Roots, Directory, Clocks, Busy, Process} }

func (t Table) String() string {
	if t >= Roots && t <= Process {
		return tableNames[t]
	}
	return "unknown table"
}

// Level is the consistency of a read of a register.
type Level uint8

const (
	// Local reads through a quorum of the local data centre. It never returns less than an
	// earlier read at this level (BLOCKING read repair), but it may miss a recent swap of
	// another data centre.
	Local Level = iota
	// Serial reads the newest decided value and finishes a pending swap.
	Serial
)

// Token is a random value by which a caller recognises its own swap.
type Token uuid.UUID

// NewToken draws a fresh token.
func NewToken() Token { return Token(uuid.New()) }

// Version identifies one state of a register. The zero Version means absent.
type Version struct {
	// Epoch grows by one with each swap; the first is 1.
	Epoch uint64
	Token Token
}

// Record is the state of a register. Blob is opaque to the store; its encoding repeats the
// epoch and token, so that its reader detects a torn read. The caller owns the blob of a
// returned record; a blob that is passed in is not kept.
type Record struct {
	Version
	Blob []byte
}

// AppendTo appends the encoded record to dst: epoch (8 bytes, big-endian), token (16), blob.
func (r Record) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Epoch)
	return append(append(dst, r.Token[:]...), r.Blob...)
}

// DecodeRecord is the inverse of AppendTo; ok is false where b is too short. It copies the blob.
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

// RegisterName names a register in errors.
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

// NodeName names a node in errors.
type NodeName struct {
	Bucket BucketID
	ID     NodeID
}

func (n NodeName) String() string { return n.Bucket.String() + "/" + n.ID.String() }

// Registers are small records that change only by compare-and-swap.
// All methods are safe for concurrent use.
type Registers interface {
	// Read returns a record, or fails with NotFound.
	Read(ctx context.Context, t Table, key []byte, l Level) (Record, error)
	// Swap replaces a record if it is still at version old (zero: absent).
	// next.Epoch must be old.Epoch+1, with a fresh token, or it is an
	// InvalidArgument. Conflict means that the register was at another version, so
	// that this swap will never apply. After any other error, Unavailable included,
	// the swap may have been applied, or may be later (OutcomeUnknown): only a later
	// version read at Serial proves that it will not.
	Swap(ctx context.Context, t Table, key []byte, old Version, next Record) error
	// Scan returns a page of the keys of a table, in the order of the store. after is the
	// last key of the previous page (nil for the first). The end is an empty page, not a
	// short one. A record created during the enumeration may be missing.
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
	// History returns up to limit replaced records of a root, those with an
	// epoch below before (0: all), newest first.
	History(ctx context.Context, id BucketID, before uint64, limit int) ([]Record, error)
	// Forget deletes the replaced records of a root with an epoch below before.
	Forget(ctx context.Context, id BucketID, before uint64) error
}

// Acknowledger is implemented by stores with several replicas. Acknowledge returns the
// newest decided record of a register once every later Read at Local, in any data centre,
// finds it or a later one. It fails like Read. Without it a Read at Serial is enough.
type Acknowledger interface {
	Acknowledge(ctx context.Context, t Table, key []byte) (Record, error)
}

// Acknowledge calls s.Acknowledge, or reads at Serial where s is no Acknowledger.
func Acknowledge(ctx context.Context, s Registers, t Table, key []byte) (Record, error) {
	if a, ok := s.(Acknowledger); ok {
		return a.Acknowledge(ctx, t, key)
	}
	return s.Read(ctx, t, key, Serial)
}

// NodeID identifies an immutable node of a map (an index node or a segment): a fresh random
// UUID.
type NodeID uuid.UUID

// String is the canonical UUID form.
func (id NodeID) String() string { return uuid.UUID(id).String() }

// MarshalText implements encoding.TextMarshaler by String.
func (id NodeID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *NodeID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// Nodes are the immutable parts of maps, by bucket. A node is written once,
// before the root that names it, and is readable wherever that root is.
// All methods are safe for concurrent use.
type Nodes interface {
	// WriteNode stores a node; writing the same bytes again is harmless.
	WriteNode(ctx context.Context, b BucketID, id NodeID, blob []byte) error
	// Node reads a node, or fails with NotFound. The bytes are the caller's.
	Node(ctx context.Context, b BucketID, id NodeID) ([]byte, error)
	// DeleteNode removes a node; removing what is not there is no error.
	DeleteNode(ctx context.Context, b BucketID, id NodeID) error
	// ScanNodes enumerates the nodes of a bucket like Registers.Scan.
	ScanNodes(ctx context.Context, b BucketID, after NodeID, limit int) ([]NodeID, error)
}

// Store has everything that a backend offers. Its users declare the smaller interface that
// they need.
type Store interface {
	Rows
	Registers
	Nodes
	// Close ends all background work. Calls under way and later ones fail with
	// Unavailable. Closing again does nothing.
	Close() error
}

// CheckRecord refuses invalid tables, keys and records.
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

// CheckRegister refuses invalid tables and keys.
func CheckRegister(t Table, key []byte) error {
	if err := CheckTable(t); err != nil {
		return err
	}
	if t == Roots && len(key) != len(BucketID{}) {
		return Errorf(InvalidArgument, "a root's key of %d bytes: it is a bucket id", len(key))
	}
	return CheckKey(key)
}

// CheckTable refuses unknown tables.
func CheckTable(t Table) error {
	if t < Roots || t > Process {
		return Errorf(InvalidArgument, "there is no register table %d", t)
	}
	return nil
}

// CheckNode refuses invalid nodes.
func CheckNode(blob []byte) error {
	if len(blob) == 0 || len(blob) > MaxNodeBytes {
		return Errorf(InvalidArgument, "a node of %d bytes: 1 to %d", len(blob), MaxNodeBytes)
	}
	return nil
}

// Scanner is what KeyPages needs of Registers.
type Scanner interface {
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
}

// KeyPages iterates over all keys of a table, a page of Scan at a time. After an error, which
// it yields, it reads the same page again if the loop goes on and ctx has not ended.
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
