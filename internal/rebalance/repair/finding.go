package repair

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// Severity says how serious a finding of the check is: a problem, something unchecked, or only information.
type Severity string

const (
	// Problem is the severity of findings that say that something in the store is wrong.
	Problem Severity = "problem"
	// Unchecked is the severity of findings that say that something could not be checked.
	Unchecked Severity = "unchecked"
	// Info is the severity of findings that say nothing wrong, e.g. that ranges move.
	Info Severity = "info"
)

// Kind says what a check has found, such as a broken partition map, in a few words.
type Kind string

// These are the kinds of findings that are problems. Each value is the text that people see.
const (
	// BrokenName means that the record of a bucket's name can't be read.
	BrokenName Kind = "broken name"
	// NoRoot means that a name leads to a bucket whose partition map has no root, so that its rows can't be found.
	NoRoot Kind = "no root"
	// SharedBucket means that several names lead to one bucket.
	SharedBucket Kind = "shared bucket"
	// NamelessBucket means that a bucket that is not deleted has no name.
	NamelessBucket Kind = "nameless bucket"
	// DeletedName means that a name leads to a deleted bucket; the deletion was not finished.
	DeletedName Kind = "deleted name"
	// BrokenList means that the list of buckets can't be read.
	BrokenList Kind = "broken list"
	// Unlisted means that a bucket with a name is missing in the list of buckets.
	Unlisted Kind = "unlisted bucket"
	// StaleListing means that the list of buckets has a name that is free, or that leads to another bucket.
	StaleListing Kind = "stale listing"

	// BrokenRoot means that the root of a bucket's partition map can't be read.
	BrokenRoot Kind = "broken root"
	// BrokenMap means that a bucket's partition map is not valid (partmap.Validate), e.g. it has a gap between ranges.
	BrokenMap Kind = "broken map"
	// RootWentBack means that nodes of a bucket's partition map are of later versions than its root can have reached.
	RootWentBack Kind = "root went back"
	// NoClock means that a bucket's map clock, the counter by which clients learn of changes, is missing or can't be
	// read.
	NoClock Kind = "no map clock"
	// LeftClosing means that the deletion of a bucket was not finished.
	LeftClosing Kind = "left closing"
	// StuckMove means that a batch (a group of moves) has been in one phase for longer than Options.StuckAfter.
	StuckMove Kind = "stuck move"
	// OutrunMove means that a move is further on than the partition map says: by the map, rows are still to be copied
	// from an old partition, but it is empty already.
	OutrunMove Kind = "outrun move"
	// OrphanNode means that nodes of partition maps are still stored, though no root has named them for a long time.
	OrphanNode Kind = "orphan node"
	// BrokenNode means that a stored node of a partition map, which no root names, can't be read.
	BrokenNode Kind = "broken node"

	// Misplaced means that rows are outside the ranges of their partition, and missing where the partition map says.
	Misplaced Kind = "misplaced rows"
	// Duplicate means that rows are outside the ranges of their partition, but are also where the partition map says.
	Duplicate Kind = "duplicate rows"
	// Uncopied means that the new partition of a moving range lacks rows that are about to be removed from the old one.
	Uncopied Kind = "uncopied rows"
	// OutrunCopy means that the new partition of a move has copies of rows of which the old partition has only older
	// versions.
	OutrunCopy Kind = "outrun copies"
	// LeftMarker means that deletion markers are left in a range whose move has ended.
	LeftMarker Kind = "left markers"
	// UnknownCell means that the values of rows are neither entries nor deletion markers.
	UnknownCell Kind = "unknown cells"
	// FutureRow means that rows have timestamps more than a minute in the future.
	FutureRow Kind = "future rows"
	// BrokenRows means that rows cannot be read.
	BrokenRows Kind = "broken rows"
	// Orphan means that a partition has rows but no range in the bucket's partition map.
	Orphan Kind = "orphan partition"
	// LeftRows means that a partition of a deleted bucket has rows.
	LeftRows Kind = "left rows"
	// LostBucket means that a partition has rows of a bucket whose partition map has no root.
	LostBucket Kind = "lost bucket"
)

// These are the kinds of findings that are no problems. Each value is the text that people see.
const (
	// Moving means that a batch (a group of moves) has begun and not ended.
	Moving Kind = "moving"
	// SweepPending means that the moves of a batch have ended, but their deletion markers are not removed yet.
	SweepPending Kind = "sweep pending"
	// Uncollected means that nodes of partition maps that no root names will be deleted soon, or belong to a pending
	// change.
	Uncollected Kind = "uncollected nodes"
	// Young means that a bucket is being created or deleted.
	Young Kind = "young bucket"
	// NoLister means that the store cannot list its partitions, so partitions without a range are not found.
	NoLister Kind = "no list of partitions"
	// NewerVersion means that a partition map was written by a newer version of evenkeel.
	NewerVersion Kind = "newer version"
)

// Finding is one thing that a check of a store has found, e.g. rows outside the ranges of their partition. Fields that
// do not apply are zero.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	// Bucket is the bucket's name, empty if it has none. ID, Partition and Node are the ids of the bucket, the
	// partition and the map node that the finding is about.
	Bucket    keytext.Key       `json:"bucket,omitempty"`
	ID        store.BucketID    `json:"bucket_id,omitzero"`
	Partition store.PartitionID `json:"partition,omitzero"`
	Node      store.NodeID      `json:"node,omitzero"`
	// Key is the first key that the finding is about.
	Key keytext.Key `json:"key,omitzero"`
	// Count is the number of rows, map nodes or ranges that the finding is about.
	Count int64 `json:"count,omitempty"`
	// Missing is the number of rows of a partition without a range that readers do not find: they are not where the
	// partition map says, or only as older rows.
	Missing int64 `json:"missing,omitempty"`
	// Text describes the finding. Mended says how it was repaired, and is empty if it was not. Todo says what an
	// operator can do.
	Text   string `json:"text"`
	Mended string `json:"mended,omitempty"`
	Todo   string `json:"todo,omitempty"`
}

// Open reports whether the finding is a problem that the check has not repaired.
func (f *Finding) Open() bool { return f.Severity == Problem && f.Mended == "" }

// String returns the finding as one line of text for people, with its place and with what was done or can be done.
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
