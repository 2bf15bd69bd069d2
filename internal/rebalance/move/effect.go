package move

import (
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Effect is one step of a move that is due now: a Wait, a Swap, a Task or a Collect. An executor carries the step out.
// Effects that Next returns together may run in any order and at the same time. An effect that fails, or whose outcome
// is unknown, is due again.
type Effect interface {
	// Key identifies the effect. Only one effect with the same key may run at a time.
	Key() string
	// String describes the effect in a few words.
	String() string
}

// Wait is the step of waiting until no process acts on an epoch of the map below Epoch. After the wait the executor
// calls Seen.Waited.
type Wait struct{ Epoch uint64 }

// Swap is the step of replacing the bucket's map by its next epoch. All fields of a Swap go into this one change, which
// succeeds or fails as a whole.
type Swap struct {
	// Epoch is the next epoch, and the id of the batch that begins with it.
	Epoch uint64
	// Advance are the batches that enter their next phase.
	Advance []Step
	// Settle are the draining batches whose work is done.
	Settle []Settlement
	// Swept are the ids of batches whose markers have all been swept.
	Swept []uint64
	// Begin are the moves of a new batch, Goals the goals of these moves.
	Begin []partmap.Move
	Goals []Goal
	// Reopen opens a bucket that was left closing.
	Reopen bool
}

// Spans returns the intervals of keys that the new batch of moves covers. There are none if the swap begins no batch.
func (e *Swap) Spans() (out []partmap.Span) {
	for _, m := range e.Begin {
		out = append(out, partmap.Span{Start: m.Start, End: m.End})
	}
	return out
}

// Step names a batch of moves, and the phase that the batch enters next.
type Step struct {
	Batch uint64
	To    partmap.Phase
}

// Settlement ends the moves of one batch: all rows are in their new partitions, and removed from the old ones. Spans
// are the intervals of keys that the batch's ranges cover.
type Settlement struct {
	Batch uint64
	Spans []partmap.Span
}

// Task is work on the rows of one range. When it is done, the executor calls Seen.Did. The phase of the range says what
// the work is:
//
//   - Copying: copy all rows of the source partition to the destination, with their timestamps, markers included.
//   - Verifying: compare source and destination. Copy rows that the destination lacks, and delete copies that the
//     source lacks.
//   - Draining: first leave notes (small rows that record the removal) in the source partition of Ranges. Then remove
//     these ranges from it, above the timestamps of all of their rows, but below the notes.
//   - Settled: sweep the range's partition, which means: read its deletion markers, check that the map still says that
//     this sweep is pending, and delete exactly those markers.
type Task struct {
	Batch uint64
	Phase partmap.Phase
	// Range is the range to work on; of a removal, the first of Ranges.
	Range partmap.Range
	// Ranges are the ranges that a removal removes. Whole says that the source has no other range.
	Ranges []partmap.Range
	Whole  bool
}

// Collect is the step of deleting stored nodes of the bucket's map that no epoch of the map needs any more.
type Collect struct{ Nodes []store.NodeID }

// Name returns one word for the work of the task: "copy", "compare", "remove" (rows that have moved) or "sweep"
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

// Key implements Effect.
func (e Wait) Key() string { return "wait" }

// Key implements Effect.
func (e Swap) Key() string { return "swap" }

// Key implements Effect.
func (e Task) Key() string { return fmt.Sprintf("%s %d %q", e.Name(), e.Batch, e.Range.Start) }

// Key implements Effect.
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
