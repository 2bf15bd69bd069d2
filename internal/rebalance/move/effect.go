package move

import (
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Effect is one thing for an executor to do: a Wait, a Swap, a Task or a Collect. Effects
// that Next returns together may run in any order and at the same time. One that fails, or
// whose outcome is unknown, is due again.
type Effect interface {
	// Key identifies the effect: of those with the same key only one may run at a time.
	Key() string
	// String describes the effect in a few words.
	String() string
}

// Wait until nobody acts on an epoch below Epoch. Then call Seen.Waited.
type Wait struct{ Epoch uint64 }

// Swap takes the map from the view's root to the next epoch. All its parts go
// into one change.
type Swap struct {
	// Epoch is the next epoch, and the id of the batch that begins with it.
	Epoch uint64
	// Advance are batches for their next phase.
	Advance []Step
	// Settle are draining batches that are done.
	Settle []Settlement
	// Swept are batches whose markers are all swept.
	Swept []uint64
	// Begin are the moves of a new batch, Goals their goals.
	Begin []partmap.Move
	Goals []Goal
	// Reopen opens a bucket that was left closing.
	Reopen bool
}

// Spans are the spans of the batch that begins with this swap.
func (e *Swap) Spans() (out []partmap.Span) {
	for _, m := range e.Begin {
		out = append(out, partmap.Span{Start: m.Start, End: m.End})
	}
	return out
}

// Step takes a batch to its next phase.
type Step struct {
	Batch uint64
	To    partmap.Phase
}

// Settlement ends the move of a batch, whose ranges fill the spans.
type Settlement struct {
	Batch uint64
	Spans []partmap.Span
}

// Task is work on one range. When it is done, call Seen.Did. The phase of the range says
// what the work is:
//
//   - Copying: copy all rows of the source to the destination, with their timestamps,
//     markers included.
//   - Verifying: compare the two. Copy what the destination lacks, and delete copies that
//     the source lacks.
//   - Draining: leave notes in the common source of Ranges, then remove them from it, above
//     the timestamps of all of their rows, but below the notes.
//   - Settled: sweep the range's partition: read its markers, check that the map still says
//     that this sweep is pending, and delete exactly those markers.
type Task struct {
	Batch uint64
	Phase partmap.Phase
	// Range is the range; of a removal, the first of Ranges.
	Range partmap.Range
	// Ranges are what a removal removes. Whole: the source has no other range.
	Ranges []partmap.Range
	Whole  bool
}

// Collect deletes map nodes that no map names or can name any more.
type Collect struct{ Nodes []store.NodeID }

// Name is what is done: "copy", "compare", "remove" or "sweep".
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
