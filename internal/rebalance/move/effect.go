package move

import (
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Effect is one thing for an executor to do. Effects returned together may be
// done in any order and at once. One that fails, or whose outcome is unknown, is
// simply due again.
type Effect interface {
	// Key is the same for effects of which one at a time is enough.
	Key() string
	// String says in a few words what is done.
	String() string
}

// Wait until nobody acts on an epoch below Epoch any more. Then tell
// Seen.Waited.
type Wait struct{ Epoch uint64 }

// Swap takes the map from the view's root to the next epoch. All its parts go
// into one change.
type Swap struct {
	// Epoch is the one that it leads to, and so the number of the batch that begins
	// with it.
	Epoch uint64
	// Advance are batches for their next phase.
	Advance []Step
	// Settle are draining batches that are done.
	Settle []Settlement
	// Swept are batches whose markers are all swept.
	Swept []uint64
	// Begin are moves for one new batch; Goals are what they are for.
	Begin []partmap.Move
	Goals []Goal
	// Reopen brings a bucket back that was left closing.
	Reopen bool
}

// Spans are where the batch that begins with this swap is.
func (e *Swap) Spans() (out []partmap.Span) {
	for _, m := range e.Begin {
		out = append(out, partmap.Span{Start: m.Start, End: m.End})
	}
	return out
}

// Step is a batch's way to its next phase.
type Step struct {
	Batch uint64
	To    partmap.Phase
}

// Settlement is a batch with the spans that its ranges fill.
type Settlement struct {
	Batch uint64
	Spans []partmap.Span
}

// Task is work on one range, within one phase of its batch. When it is done,
// tell Seen.Did.
type Task struct {
	Batch uint64
	Phase partmap.Phase
	Range partmap.Range
}

// Copy all rows of the source to the destination, with their timestamps, markers
// included.
type Copy struct{ Task }

// Verify that the destination has each row of the source or a newer one; copy
// what it lacks.
type Verify struct{ Task }

// Remove the ranges of a batch that have left one source from it, above the
// timestamps of all of their rows. The task's range is the first of them.
type Remove struct {
	Task
	Ranges []partmap.Range
	// Whole: the source has nothing else and goes altogether.
	Whole bool
}

// Sweep the markers in the range's partition: read them, then look whether the
// map still says that this sweep is pending, then delete exactly those.
type Sweep struct{ Task }

// Collect deletes map nodes that no map names or can name any more.
type Collect struct{ Nodes []store.NodeID }

func (e Wait) Key() string    { return "wait" }
func (e Swap) Key() string    { return "swap" }
func (e Copy) Key() string    { return e.key("copy") }
func (e Verify) Key() string  { return e.key("verify") }
func (e Remove) Key() string  { return e.key("remove") }
func (e Sweep) Key() string   { return e.key("sweep") }
func (e Collect) Key() string { return "collect" }

func (t *Task) key(what string) string { return fmt.Sprintf("%s %d %q", what, t.Batch, t.Range.Start) }

func (t *Task) span() string { return fmt.Sprintf("[%q, %q)", t.Range.Start, t.Range.End) }

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

func (e Copy) String() string   { return "copy " + e.span() }
func (e Verify) String() string { return "verify " + e.span() }
func (e Remove) String() string {
	if e.Whole {
		return "remove partition " + e.Range.Partition.String()
	}
	return fmt.Sprintf("remove %d ranges from %s on", len(e.Ranges), e.span())
}
func (e Sweep) String() string   { return "sweep " + e.span() }
func (e Collect) String() string { return fmt.Sprintf("collect %d nodes", len(e.Nodes)) }
