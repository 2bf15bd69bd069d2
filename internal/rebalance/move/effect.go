package move

import (
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Effect is one step of a move that is due now: a Wait, a Swap (a change of the partition map), a Task (work on rows)
// or a Collect (deletion of old map nodes). An executor carries the step out. Effects that Next returns together may
// run in any order and at the same time. If an effect fails, or its outcome is unknown, Next returns it again.
type Effect interface {
	// Key returns a text that identifies the effect. Only one effect with the same key may run at a time.
	Key() string
	// String returns a description of the effect in a few words, for logs.
	String() string
}

// Wait is the step of waiting until no process uses a version of the bucket's partition map below Epoch. After the wait
// the executor calls Seen.Waited.
type Wait struct{ Epoch uint64 }

// Swap is the step of replacing the bucket's partition map by its next version. By this change moves begin, enter their
// next phases, or end. All fields of a Swap go into one change, which succeeds or fails as a whole.
type Swap struct {
	// Epoch is the next version of the partition map, and also the id of the batch (group of moves) that begins with
	// it.
	Epoch uint64
	// Advance are the batches (groups of moves) that enter their next phase.
	Advance []Step
	// Settle are the batches in the phase Draining whose old rows have been removed, so that their moves end.
	Settle []Settlement
	// Swept are the ids of batches whose deletion markers have all been deleted.
	Swept []uint64
	// Begin are the moves of a new batch, and Goals are the goals (wanted changes of ranges) that these moves fulfil.
	Begin []partmap.Move
	Goals []Goal
	// Reopen opens a bucket again whose deletion was begun and then given up.
	Reopen bool
}

// Spans returns the intervals of keys that the new batch of moves covers. The result is empty if the swap begins no
// batch.
func (e *Swap) Spans() (out []store.Bounds) {
	for _, m := range e.Begin {
		out = append(out, store.Bounds{Start: m.Start, End: m.End})
	}
	return out
}

// Step names a batch (a group of moves) by its id, and the phase that the batch enters next.
type Step struct {
	Batch uint64
	To    partmap.Phase
}

// Settlement ends the moves of one batch, which is a group of moves. All their rows are in the new partitions by now,
// and removed from the old ones. Spans are the intervals of keys of the batch.
type Settlement struct {
	Batch uint64
	Spans []store.Bounds
}

// Task is work on the rows of one range, as a step of a move. When the work is done, the executor calls Seen.Did. The
// phase of the range says what the work is:
//   - Copying: copy all rows of the source partition to the destination, with their timestamps, deletion markers
//     included.
//   - Verifying: compare source and destination. Copy rows that the destination lacks, and delete copies that the
//     source lacks.
//   - Draining: write notes into the source partition, small rows that say where the rows of Ranges are. Then remove
//     the rows of Ranges from it. The timestamp of the removal is above those of the rows, and below those of the
//     notes.
//   - Settled: sweep the range's partition. Read the deletion markers in it. Then check that the partition map still
//     says that this sweep is pending. If so, delete exactly these markers.
type Task struct {
	Batch uint64
	Phase partmap.Phase
	// Range is the range to work on. If rows are to be removed, Range is the first of Ranges.
	Range partmap.Range
	// Ranges are the ranges whose rows are to be removed from the source. Whole is true if the source has no other
	// range.
	Ranges []partmap.Range
	Whole  bool
}

// Collect is the step of deleting stored nodes of the bucket's partition map that no version of the map needs any more.
type Collect struct{ Nodes []store.NodeID }

// Name returns one word for the work of the task: "copy", "compare", "remove" (old rows that have moved) or "sweep"
// (deletion markers that are no longer needed).
func (e Task) Name() string {
	switch e.Phase {
	case partmap.Copying:
		return "copy"
	case partmap.Verifying:
		return "compare"
	case partmap.Draining:
		return "remove"
	}
	return "sweep"
}

// Key returns "wait": only one wait runs at a time.
func (e Wait) Key() string { return "wait" }

// Key returns "swap": only one change of the partition map runs at a time.
func (e Swap) Key() string { return "swap" }

// Key returns a text that names the kind of work, the batch of moves and the first key of the range.
func (e Task) Key() string { return fmt.Sprintf("%s %d %q", e.Name(), e.Batch, e.Range.Start) }

// Key returns "collect": only one deletion of old map nodes runs at a time.
func (e Collect) Key() string { return "collect" }

func (e Wait) String() string { return fmt.Sprintf("wait for epoch %d", e.Epoch) }

func (e Swap) String() string {
	s := "swap:"
	if e.Reopen {
		s += " reopen;"
	}
	if len(e.Begin) > 0 {
		s += fmt.Sprintf(" begin %d moves;", len(e.Begin))
	}
	for _, a := range e.Advance {
		s += fmt.Sprintf(" batch %d to %s;", a.Batch, a.To)
	}
	for _, x := range e.Settle {
		s += fmt.Sprintf(" batch %d settled;", x.Batch)
	}
	for _, id := range e.Swept {
		s += fmt.Sprintf(" batch %d swept;", id)
	}
	return s[:len(s)-1]
}

func (e Task) String() string {
	span := fmt.Sprintf("[%q, %q)", e.Range.Start, e.Range.End)
	switch {
	case e.Whole:
		return "remove partition " + e.Range.Partition.String()
	case e.Phase == partmap.Draining:
		return fmt.Sprintf("remove %d ranges from %s on", len(e.Ranges), span)
	}
	return e.Name() + " " + span
}

func (e Collect) String() string { return fmt.Sprintf("collect %d nodes", len(e.Nodes)) }
