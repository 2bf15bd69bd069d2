package executor

import (
	"slices"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
)

// EventKind says what an Event is about.
type EventKind uint8

const (
	// Did: an effect ended, well or with Err.
	Did EventKind = iota
	// GoalBegun: the move of a goal is in the map, in Batch.
	GoalBegun
	// GoalMet: the map is as a goal wants it.
	GoalMet
	// GoalRefused: a goal does not fit the map; Err says why.
	GoalRefused
	// Looked: the map could not be read, and everything has to wait; Err says why.
	// Without Err: it can be read again.
	Looked
)

// Event is something that happened.
type Event struct {
	Kind   EventKind
	Effect move.Effect // of Did
	Goal   *move.Goal  // of goals
	Batch  uint64      // of GoalBegun
	Err    error
}

// Progress counts rows. How many are still to go is for those to say who know the
// sizes of ranges; a rate is the difference of two. What is done again after a
// failure counts again.
type Progress struct {
	// Copied and Verified rows of sources; Mended are those that verifying found
	// missing; Searched are the rows in which the sweep has looked for markers, and
	// Swept those that were some.
	Copied, Verified, Mended, Searched, Swept int64
}

type progress struct{ copied, verified, mended, searched, swept atomic.Int64 }

func (p *progress) read() Progress {
	return Progress{Copied: p.copied.Load(), Verified: p.verified.Load(), Mended: p.mended.Load(), Searched: p.searched.Load(), Swept: p.swept.Load()}
}

// Progress returns the counts since the executor was made.
func (x *Executor) Progress() Progress { return x.total.read() }

// count counts for a batch and for all.
func (x *Executor) count(batch uint64, f func(*progress)) {
	x.mu.Lock()
	p := x.batches[batch]
	x.mu.Unlock()
	if p != nil {
		f(p)
	}
	f(&x.total)
}

// Status is what an executor knows of its bucket. It is as old as its last look at
// the map.
type Status struct {
	// Epoch is zero before the first look.
	Epoch   uint64
	State   partmap.State
	Ranges  uint64
	Batches []BatchStatus
	// Goals whose end has not come.
	Goals int
	// Held: nothing may begin.
	Held bool
}

// BatchStatus is a batch of moves in flight.
type BatchStatus struct {
	partmap.Batch
	// Progress since this executor found the batch.
	Progress Progress
}

// Status returns what is known at the moment.
func (x *Executor) Status() Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.status
	s.Batches = slices.Clone(s.Batches)
	for i := range s.Batches {
		if p := x.batches[s.Batches[i].ID]; p != nil {
			s.Batches[i].Progress = p.read()
		}
	}
	s.Goals, s.Held = len(x.goals), x.held != nil
	return s
}

// note remembers what a root says.
func (x *Executor) note(root *partmap.Root) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status = Status{Epoch: root.Epoch, State: root.State, Ranges: root.Ranges}
	there := map[uint64]bool{}
	for _, b := range root.Batches {
		there[b.ID] = true
		x.status.Batches = append(x.status.Batches, BatchStatus{Batch: b})
		if x.batches[b.ID] == nil {
			x.batches[b.ID] = &progress{}
		}
	}
	for id := range x.batches {
		if !there[id] {
			delete(x.batches, id)
		}
	}
}
