package repair

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Severity says how serious a finding of the check is.
type Severity string

const (
	// Problem: something in the store is wrong.
	Problem Severity = "problem"
	// Unchecked: something could not be checked.
	Unchecked Severity = "unchecked"
	// Info: nothing is wrong.
	Info Severity = "info"
)

// Kind says what a check has found, such as a broken map.
type Kind string

// The kinds of problems.
const (
	// BrokenName: a directory record can't be read.
	BrokenName Kind = "broken name"
	// NoRoot: a name leads to a bucket that has no root.
	NoRoot Kind = "no root"
	// SharedBucket: several names lead to one bucket.
	SharedBucket Kind = "shared bucket"
	// NamelessBucket: a bucket that is not deleted has no name.
	NamelessBucket Kind = "nameless bucket"
	// DeletedName: a name leads to a deleted bucket; the deletion was not finished.
	DeletedName Kind = "deleted name"
	// BrokenList: the list of buckets can't be read.
	BrokenList Kind = "broken list"
	// Unlisted: a bucket is not on the list of buckets.
	Unlisted Kind = "unlisted bucket"
	// StaleListing: the list of buckets has a name that leads elsewhere or nowhere.
	StaleListing Kind = "stale listing"

	// BrokenRoot: a root can't be read.
	BrokenRoot Kind = "broken root"
	// BrokenMap: a map is not valid (partmap.Validate).
	BrokenMap Kind = "broken map"
	// RootWentBack: map nodes are of later epochs than the root can have reached.
	RootWentBack Kind = "root went back"
	// NoClock: a bucket's map clock is missing or can't be read.
	NoClock Kind = "no map clock"
	// LeftClosing: the deletion of a bucket was not finished.
	LeftClosing Kind = "left closing"
	// StuckMove: a batch has been in its phase for a long time.
	StuckMove Kind = "stuck move"
	// OutrunMove: a batch is not draining yet, by the map, but one of its sources is empty.
	OutrunMove Kind = "outrun move"
	// OrphanNode: map nodes that no root has named for a long time still exist.
	OrphanNode Kind = "orphan node"
	// BrokenNode: a map node that no root names can't be read.
	BrokenNode Kind = "broken node"

	// Misplaced: rows are outside the ranges of their partition, and not where the map says.
	Misplaced Kind = "misplaced rows"
	// Duplicate: rows are outside the ranges of their partition, but also where the map says.
	Duplicate Kind = "duplicate rows"
	// Uncopied: rows of a draining range are not in its destination.
	Uncopied Kind = "uncopied rows"
	// OutrunCopy: the source of copies has older rows than the copies.
	OutrunCopy Kind = "outrun copies"
	// LeftMarker: markers are left in a range that is settled and swept.
	LeftMarker Kind = "left markers"
	// UnknownCell: rows are neither entries nor markers.
	UnknownCell Kind = "unknown cells"
	// FutureRow: rows have timestamps far in the future.
	FutureRow Kind = "future rows"
	// BrokenRows: rows cannot be read.
	BrokenRows Kind = "broken rows"
	// Orphan: a partition has rows but no range.
	Orphan Kind = "orphan partition"
	// LeftRows: a partition of a deleted bucket has rows.
	LeftRows Kind = "left rows"
	// LostBucket: a partition has rows of a bucket that has no root.
	LostBucket Kind = "lost bucket"
)

// The kinds of findings that are no problems.
const (
	// Moving: a batch of moves is in flight.
	Moving Kind = "moving"
	// SweepPending: only the sweep of markers is left of a batch.
	SweepPending Kind = "sweep pending"
	// Uncollected: map nodes that no root names will be collected soon, or belong to a pending swap.
	Uncollected Kind = "uncollected nodes"
	// Young: a bucket is being created or deleted.
	Young Kind = "young bucket"
	// NoLister: the store cannot list its partitions, so orphans are not found.
	NoLister Kind = "no list of partitions"
	// NewerVersion: a map was written by a newer version of evenkeel.
	NewerVersion Kind = "newer version"
)

// Finding is one thing that a check has found. Fields that do not apply are zero.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	// Bucket is the bucket's name, empty if it has none.
	Bucket    keytext.Key       `json:"bucket,omitempty"`
	ID        store.BucketID    `json:"bucket_id,omitzero"`
	Partition store.PartitionID `json:"partition,omitzero"`
	Node      store.NodeID      `json:"node,omitzero"`
	// Key is the first key concerned.
	Key keytext.Key `json:"key,omitzero"`
	// Count is the number of rows, nodes or ranges concerned.
	Count int64 `json:"count,omitempty"`
	// Missing is the number of rows of an orphan partition that are not where the map says,
	// or are older there.
	Missing int64 `json:"missing,omitempty"`
	// Text describes the finding, Mended what was done about it, and Todo what an operator
	// can do.
	Text   string `json:"text"`
	Mended string `json:"mended,omitempty"`
	Todo   string `json:"todo,omitempty"`
}

// Open reports whether the finding is a problem that the check has not repaired.
func (f *Finding) Open() bool { return f.Severity == Problem && f.Mended == "" }

// String returns the finding as one line of text for people.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Severity, f.Kind)
	switch {
	case len(f.Bucket) > 0:
		fmt.Fprintf(&b, " in bucket %s", f.Bucket)
	case f.ID != store.BucketID{}:
		fmt.Fprintf(&b, " in bucket %s", f.ID)
	}
	if !f.Partition.IsZero() {
		fmt.Fprintf(&b, ", partition %s", f.Partition)
	}
	if (f.Node != store.NodeID{}) {
		fmt.Fprintf(&b, ", node %s", f.Node)
	}
	fmt.Fprintf(&b, ": %s", f.Text)
	if f.Mended != "" {
		fmt.Fprintf(&b, " [mended: %s]", f.Mended)
	} else if f.Todo != "" {
		fmt.Fprintf(&b, " [%s]", f.Todo)
	}
	return b.String()
}
