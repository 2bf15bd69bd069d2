package executor

import (
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// EventKind says what an Event of an executor reports, e.g. that a step of a move has ended.
type EventKind uint8

const (
	// Did reports that an effect (a step of a move) has ended, with Err if it failed.
	Did EventKind = iota
	// GoalBegun reports that the move of a goal (a wanted change of ranges) is in the partition map, in the batch with
	// the id Batch.
	GoalBegun
	// GoalMet reports that the partition map has the ranges that the goal asks for.
	GoalMet
	// GoalRefused reports that a goal does not fit the partition map, and is given up. Err says why.
	GoalRefused
	// Looked reports whether the partition map can be read. If Err is not nil, the map can't be read, and nothing goes
	// on. If Err is nil, the map can be read again.
	Looked
)

// Event is something that an executor has done or found out, e.g. that rows were copied or that a goal is met. The
// executor passes each event to Options.Observe.
type Event struct {
	Kind   EventKind
	Effect move.Effect // for Did
	Goal   *move.Goal  // for GoalBegun, GoalMet and GoalRefused
	Batch  uint64      // for GoalBegun
	Rows   Progress    // of the goal that has ended, since its move began in this process
	Err    error
}

// Progress counts the rows that moves have worked on, by kind of work. Work that is repeated after a failure is counted
// again.
type Progress struct {
	// Copied and Compared are numbers of rows of old partitions. Mended is the number of rows that the comparison found
	// missing in the new partition and copied. Searched is the number of rows that were read in search of deletion
	// markers, and Swept is the number of markers found.
	Copied, Compared, Mended, Searched, Swept int64
}

// Progress returns how many rows all moves of the bucket together have worked on since the executor was made.
func (x *Executor) Progress() Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.total
}

// begun is a goal (one wanted change of ranges) whose move has begun. It has the id of the group of moves (batch), and
// the numbers of rows that the move has worked on.
type begun struct {
	goal  move.Goal
	batch uint64
	rows  Progress
}

// count adds to the numbers of rows that moves have worked on, after the task t has worked on rows. f is a function
// that adds to one set of such numbers. count calls f for the numbers of
//   - the task's batch, which is a group of moves,
//   - the goal (one wanted change of ranges) that the move fulfils, and
//   - all moves together.
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

// Status is the state of a bucket and its moves, as of the executor's last read of the bucket's partition map.
type Status struct {
	// Epoch is the epoch (version) of the partition map. It is zero before the first read.
	Epoch   uint64
	State   partmap.State
	Ranges  uint64
	Batches []BatchStatus
	// Goals is the number of goals (wanted changes of ranges) that have not ended.
	Goals int
	// Held is true during a pause, in which no move may begin.
	Held bool
}

// BatchStatus is the state of a batch, which is a group of moves that go through their phases together: its phase, and
// the rows worked on.
type BatchStatus struct {
	partmap.Batch
	// Progress has the numbers of rows that the batch has worked on since this executor first saw the batch in the
	// partition map.
	Progress Progress
}

// Status returns the state of the bucket and its moves, as of the executor's last read of the bucket's partition map.
// Only the numbers of rows are up to date.
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

// note records the state of the bucket for the method Status, from the given root of the partition map. It forgets the
// batches (groups of moves) that have ended.
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
