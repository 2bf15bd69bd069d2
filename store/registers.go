package store

import (
	"context"
	"iter"

	"github.com/google/uuid"
)

// Table is a family of registers. Each is a table of its own in Cassandra.
type Table uint8

const (
	// Roots: one record per bucket, by the 16 bytes of its BucketID; never
	// removed. A swap in this table keeps the record that it replaces (see
	// Registers.History).
	Roots Table = iota + 1
	// Directory: one record per bucket name; never removed, a free name has a
	// record that says so (its epoch goes on growing).
	Directory
	// Clocks: the map clocks, by number.
	Clocks
	// Busy: a hint, which buckets may have a move in flight.
	Busy
	// Process: what a process must remember across restarts: the leader record,
	// the ceiling of an embedded timestamp source.
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

// Level is how current a read of a register has to be.
type Level uint8

const (
	// Local reads through a quorum of the local data centre. It never goes
	// behind what this level has returned before (BLOCKING read repair), but a
	// swap may not be visible yet to it in another data centre.
	Local Level = iota
	// Serial reads the newest decided value and finishes a pending swap.
	Serial
)

// Token is a random mark by which a swapper recognises its own swap.
type Token uuid.UUID

// NewToken draws a fresh token.
func NewToken() Token { return Token(uuid.New()) }

// Version identifies one state of a register. The zero Version is "absent".
type Version struct {
	// Epoch grows by one with each swap; the first is 1.
	Epoch uint64
	Token Token
}

// Record is a register's state. Blob is opaque to the store; what matters in it
// repeats the epoch and token, so that a torn read is noticed by its reader. The
// blob of a record handed out is the caller's; one handed in is not kept.
type Record struct {
	Version
	Blob []byte
}

// Registers are small records that only ever change by compare-and-swap.
// All methods are safe for concurrent use.
type Registers interface {
	// Read returns a record, or fails with NotFound.
	Read(ctx context.Context, t Table, key []byte, l Level) (Record, error)
	// Swap replaces a record if it is still at version old (zero: absent).
	// next.Epoch must be old.Epoch+1, with a fresh token, or it is an
	// InvalidArgument. Conflict means that the register was at another version,
	// so that this swap will never apply. Any other error, Unavailable
	// included, means that the swap may have been applied, or may be later:
	// only a later version seen at Serial proves that it will not.
	Swap(ctx context.Context, t Table, key []byte, old Version, next Record) error
	// Scan enumerates a table's keys in the store's own order; after is the
	// last key of the page before (nil for the first), and an empty page ends
	// it, not a short one. A record created during the enumeration may be missing.
	Scan(ctx context.Context, t Table, after []byte, limit int) ([][]byte, error)
	// History returns up to limit replaced records of a root, those with an
	// epoch below before (0: all), newest first.
	History(ctx context.Context, id BucketID, before uint64, limit int) ([]Record, error)
	// Forget drops the replaced records of a root with an epoch below before.
	Forget(ctx context.Context, id BucketID, before uint64) error
}

// Acknowledger is the optional power of a store with many replicas: Acknowledge
// returns the newest decided record of a register once every later Read at Local,
// wherever, finds it or a later one. It fails like Read. In a store without it a
// Read at Serial says as much.
type Acknowledger interface {
	Acknowledge(ctx context.Context, t Table, key []byte) (Record, error)
}

// Acknowledge is s.Acknowledge, or what says as much in a store without it.
func Acknowledge(ctx context.Context, s Registers, t Table, key []byte) (Record, error) {
	if a, ok := s.(Acknowledger); ok {
		return a.Acknowledge(ctx, t, key)
	}
	return s.Read(ctx, t, key, Serial)
}

// NodeID names an immutable node of a map (an index node or a segment). It is a
// fresh random UUID.
type NodeID uuid.UUID

// String is the canonical UUID form.
func (id NodeID) String() string { return uuid.UUID(id).String() }

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

// Store is everything that one backend offers. Users declare the smaller
// interface that they need.
type Store interface {
	Rows
	Registers
	Nodes
	// Close ends all background work. Calls under way and later ones fail with
	// Unavailable. Closing again does nothing.
	Close() error
}

// CheckRecord refuses tables, keys and records that no store takes.
func CheckRecord(t Table, key []byte, old Version, next Record) error {
	if err := CheckRegister(t, key); err != nil {
		return err
	}
	if (old.Epoch == 0) != (old.Token == Token{}) {
		return Errorf(InvalidArgument, "a swap from epoch %d with token %s: absent has neither", old.Epoch, uuid.UUID(old.Token))
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

// CheckRegister refuses tables and keys that no store takes.
func CheckRegister(t Table, key []byte) error {
	if err := CheckTable(t); err != nil {
		return err
	}
	if t == Roots && len(key) != len(BucketID{}) {
		return Errorf(InvalidArgument, "a root's key of %d bytes: it is a bucket id", len(key))
	}
	return CheckKey(key)
}

// CheckTable refuses tables that there are not.
func CheckTable(t Table) error {
	if t < Roots || t > Process {
		return Errorf(InvalidArgument, "there is no register table %d", t)
	}
	return nil
}

// CheckNode refuses nodes that no store takes.
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
