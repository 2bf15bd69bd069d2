package store

import (
	"context"

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
	// Clocks has the map clocks. A map clock is a counter that many buckets share. It is raised after every change of
	// one of their maps. The key is the number of the clock.
	Clocks
	// Busy has one record: a list of the buckets whose rows may be moving between partitions. The list is only a hint.
	Busy
	// Process has records that processes keep across restarts:
	//   - the leader;
	//   - the highest timestamp that an embedded source of timestamps may give out;
	//   - the progress of deletions of large buckets;
	//   - the last audit of bodies, and whether the storage of the bodies was marked.
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
	// at this level (BLOCKING read repair). But it may miss a recent swap of another data centre.
	Local Level = iota
	// Serial reads the newest decided version. If a swap is pending, the read finishes the swap first.
	Serial
)

// Token is a random value that marks one version of a register, a record that changes only by compare-and-swap. If the
// outcome of a swap is unknown, the caller reads the register. By the token it recognises its own version.
type Token uuid.UUID

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
