package executor

import (
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// Did: an effect ended, with Err if it failed.
	Did EventKind = iota
	// GoalBegun: the move of a goal is in the map, in Batch.
	GoalBegun
	// GoalMet: the map is as the goal wants it.
	GoalMet
	// GoalRefused: a goal does not fit the map; Err says why.
	GoalRefused
	// Looked: the map could not be read, so nothing goes on; Err says why. Without Err: it
	// can be read again.
	Looked
)

// Event is something that happened.
type Event struct {
	Kind   EventKind
	Effect move.Effect // of Did
	Goal   *move.Goal  // of goals
	Batch  uint64      // of GoalBegun
	Rows   Progress    // of the goal that ended, since it began in this process
	Err    error
}

// Progress counts rows. Rows that are done again after a failure count again.
type Progress struct {
	// Copied and Compared are rows of sources; Mended are those that comparing found
	// missing; Searched are rows that sweeps read, Swept the markers among them.
	Copied, Compared, Mended, Searched, Swept int64
}

// Progress returns the counts since the executor was made.
func (x *Executor) Progress() Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.total
}

// begun is a goal whose move is in the map, and what was done for it.
type begun struct {
	goal  move.Goal
	batch uint64
	rows  Progress
}

// count adds to the counts of a task's batch and goal, and to the total.
func (x *Executor) count(t *move.Task, f func(*Progress)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.batches[t.Batch]; p != nil {
		f(p)
	}
	for i := range x.begun {
		if b := &x.begun[i]; b.batch == t.Batch && store.Within(t.Range.Start, store.Bounds{Start: b.goal.Start, End: b.goal.End}) {
			f(&b.rows)
		}
	}
	f(&x.total)
}

// Status is the state of a bucket, as of the executor's last look at the map.
type Status struct {
	// Epoch is zero before the first look.
	Epoch   uint64
	State   partmap.State
	Ranges  uint64
	Batches []BatchStatus
	// Goals is the number of goals that have not ended.
	Goals int
	// Held: no move may begin.
	Held bool
}

// BatchStatus is a batch of moves in flight.
type BatchStatus struct {
	partmap.Batch
	// Progress since this executor found the batch.
	Progress Progress
}

// Status returns the present state.
func (x *Executor) Status() Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.status
	s.Batches = slices.Clone(s.Batches)
	for i := range s.Batches {
		if p := x.batches[s.Batches[i].ID]; p != nil {
			s.Batches[i].Progress = *p
		}
	}
	s.Goals, s.Held = len(x.goals), x.held != nil
	return s
}

// note records the state of a root.
func (x *Executor) note(root *partmap.Root) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status = Status{Epoch: root.Epoch, State: root.State, Ranges: root.Ranges}
	there := map[uint64]bool{}
	for _, b := range root.Batches {
		there[b.ID] = true
		x.status.Batches = append(x.status.Batches, BatchStatus{Batch: b})
		if x.batches[b.ID] == nil {
			x.batches[b.ID] = &Progress{}
		}
	}
	maps.DeleteFunc(x.batches, func(id uint64, _ *Progress) bool { return !there[id] })
}
