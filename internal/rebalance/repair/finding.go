package repair

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/base/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// Severity says how much a finding matters.
type Severity string

const (
	// Problem: something is wrong.
	Problem Severity = "problem"
	// Unchecked: something could not be looked at.
	Unchecked Severity = "unchecked"
	// Info: nothing is wrong; it is as it is while moves are under way.
	Info Severity = "info"
)

// Kind sorts findings.
type Kind string

// The kinds of problems.
const (
	// BrokenName: a record of the directory can't be read.
	BrokenName Kind = "broken name"
	// NoRoot: a name leads to a bucket that has no root.
	NoRoot Kind = "no root"
	// SharedBucket: several names lead to one bucket.
	SharedBucket Kind = "shared bucket"
	// NamelessBucket: a bucket that is not deleted has no name.
	NamelessBucket Kind = "nameless bucket"
	// DeletedName: a name leads to a deleted bucket: its deleter did not come to
	// the end.
	DeletedName Kind = "deleted name"
	// BrokenList: the list of buckets can't be read.
	BrokenList Kind = "broken list"
	// Unlisted: a bucket is not on the list of buckets.
	Unlisted Kind = "unlisted bucket"
	// StaleListing: the list of buckets has a name that leads elsewhere or nowhere.
	StaleListing Kind = "stale listing"

	// BrokenRoot: a root can't be read.
	BrokenRoot Kind = "broken root"
	// BrokenMap: a map does not hold together (partmap.Validate).
	BrokenMap Kind = "broken map"
	// RootWentBack: map nodes are of later epochs than their root can have led to.
	RootWentBack Kind = "root went back"
	// NoClock: a bucket's map clock is missing or can't be read.
	NoClock Kind = "no map clock"
	// LeftClosing: whoever wanted to delete a bucket did not come to the end.
	LeftClosing Kind = "left closing"
	// StuckMove: moves have not come on for a long time.
	StuckMove Kind = "stuck move"
	// OutrunMove: a batch of moves is still compared, as the map has it, but a source of
	// it has been emptied.
	OutrunMove Kind = "outrun move"
	// OrphanNode: map nodes that no root names, for a long time.
	OrphanNode Kind = "orphan node"
	// BrokenNode: a map node that no root names can't be read.
	BrokenNode Kind = "broken node"

	// Misplaced: rows outside of the ranges that the map gives their partition,
	// which are not where the map says, either.
	Misplaced Kind = "misplaced rows"
	// Duplicate: the same, but the key is where the map says, too.
	Duplicate Kind = "duplicate rows"
	// Uncopied: rows of a range that is draining, which are not in its destination.
	Uncopied Kind = "uncopied rows"
	// LeftMarker: markers in a range that is settled and swept.
	LeftMarker Kind = "left markers"
	// UnknownCell: rows that are neither entries nor markers.
	UnknownCell Kind = "unknown cells"
	// FutureRow: rows written far in the future.
	FutureRow Kind = "future rows"
	// BrokenRows: rows that can't be read.
	BrokenRows Kind = "broken rows"
	// Orphan: a partition that has rows, and no range.
	Orphan Kind = "orphan partition"
	// LeftRows: a partition of a deleted bucket that has rows.
	LeftRows Kind = "left rows"
	// LostBucket: a partition that has rows, of a bucket that has no root.
	LostBucket Kind = "lost bucket"
)

// The kinds of information.
const (
	// Moving: a batch of moves is under way.
	Moving Kind = "moving"
	// SweepPending: a batch of moves is done but for the sweep of its markers.
	SweepPending Kind = "sweep pending"
	// Uncollected: map nodes that nobody names wait for their collection, or
	// belong to a swap that may still come.
	Uncollected Kind = "uncollected nodes"
	// Young: a bucket is being created or deleted.
	Young Kind = "young bucket"
	// NoLister: the store can't list its partitions, so orphans are not looked for.
	NoLister Kind = "no list of partitions"
	// NewerVersion: a map was written by a later evenkeel.
	NewerVersion Kind = "newer version"
)

// Finding is one thing that was found.
type Finding struct {
	Severity Severity
	Kind     Kind
	// Bucket is its name, empty where it has none; ID is zero where the finding
	// concerns no bucket.
	Bucket string
	ID     store.BucketID
	// Partition and Node are zero where it concerns none.
	Partition store.PartitionID
	Node      store.NodeID
	// Key is the first that is concerned; nil for none.
	Key []byte
	// Count is how many rows, nodes or ranges are concerned; 0 where that says
	// nothing.
	Count int64
	// Missing is, of a partition without a range, how many of its rows are not where
	// the map says, or are older there.
	Missing int64
	// Text says what is the matter.
	Text string
	// Mended is what was done about it; empty: nothing.
	Mended string
	// Todo is what an operator can do.
	Todo string
}

// Open reports whether the finding is a problem that is still there.
func (f *Finding) Open() bool { return f.Severity == Problem && f.Mended == "" }

// String is one line for people.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Severity, f.Kind)
	switch {
	case f.Bucket != "":
		fmt.Fprintf(&b, " in bucket %s", keytext.Format([]byte(f.Bucket)))
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

// inJSON is a finding in JSON, with keys and names as everywhere in evenkeel.
type inJSON struct {
	Severity  Severity     `json:"severity"`
	Kind      Kind         `json:"kind"`
	Bucket    *keytext.Key `json:"bucket,omitempty"`
	ID        *uuid.UUID   `json:"bucket_id,omitempty"`
	Partition *uuid.UUID   `json:"partition,omitempty"`
	Node      *uuid.UUID   `json:"node,omitempty"`
	Key       *keytext.Key `json:"key,omitempty"`
	Count     int64        `json:"count,omitempty"`
	Missing   int64        `json:"missing,omitempty"`
	Text      string       `json:"text"`
	Mended    string       `json:"mended,omitempty"`
	Todo      string       `json:"todo,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (f Finding) MarshalJSON() ([]byte, error) {
	x := inJSON{Severity: f.Severity, Kind: f.Kind, Count: f.Count, Missing: f.Missing, Text: f.Text, Mended: f.Mended, Todo: f.Todo}
	if f.Bucket != "" {
		name := keytext.Key(f.Bucket)
		x.Bucket = &name
	}
	if f.Key != nil {
		k := keytext.Key(f.Key)
		x.Key = &k
	}
	for to, id := range map[**uuid.UUID]uuid.UUID{&x.ID: uuid.UUID(f.ID), &x.Partition: uuid.UUID(f.Partition), &x.Node: uuid.UUID(f.Node)} {
		if id != uuid.Nil {
			*to = &id
		}
	}
	return json.Marshal(x)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Finding) UnmarshalJSON(data []byte) error {
	var x inJSON
	if err := json.Unmarshal(data, &x); err != nil {
		return err
	}
	*f = Finding{Severity: x.Severity, Kind: x.Kind, Count: x.Count, Missing: x.Missing, Text: x.Text, Mended: x.Mended, Todo: x.Todo}
	if x.Bucket != nil {
		f.Bucket = string(*x.Bucket)
	}
	if x.Key != nil {
		f.Key = *x.Key
	}
	for to, id := range map[*uuid.UUID]*uuid.UUID{(*uuid.UUID)(&f.ID): x.ID, (*uuid.UUID)(&f.Partition): x.Partition, (*uuid.UUID)(&f.Node): x.Node} {
		if id != nil {
			*to = *id
		}
	}
	return nil
}
