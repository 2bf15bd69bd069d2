package move

import (
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Seen is what one process that moves ranges has observed: the version of the partition map that it has waited for, the
// batches (groups of moves) in flight, and the work that is done. Next needs a Seen to know what is still to do. The
// zero value is for a process that has just started. Only one goroutine may use a Seen.
type Seen struct {
	waited  uint64
	batches map[uint64]*progress
	// where has the intervals of keys of each batch in flight. Their outer bounds do not change while the batch moves.
	where map[uint64][]store.Bounds
}

// progress is what one process knows about a batch (a group of moves): its phase, and which work of this phase is done.
type progress struct {
	phase partmap.Phase
	// entered is an epoch (version of the partition map) at which the batch was surely in the phase. The phase's work
	// begins when no process uses an older epoch any more. A process that finds a batch does not know when its phase
	// began, and takes the epoch at which it has read the map.
	entered uint64
	done    map[string]bool // starts of ranges whose task is done
}

// look records the batches (groups of moves) that the given root of a partition map lists, and the phase of each. It
// forgets batches that have ended.
func (s *Seen) look(root *partmap.Root) {
	if s.batches == nil {
		s.batches = map[uint64]*progress{}
	}
	there := map[uint64]bool{}
	for _, b := range root.Batches {
		there[b.ID] = true
		if p := s.batches[b.ID]; p == nil || p.phase != b.Phase {
			s.batches[b.ID] = &progress{phase: b.Phase, entered: root.Epoch, done: map[string]bool{}}
		}
	}
	for id := range s.batches {
		if !there[id] {
			delete(s.batches, id)
			delete(s.where, id)
		}
	}
}

// Began records the intervals of keys that a batch (a group of moves) covers, so that the function Look need not search
// the partition map for them. Began may be called before the batch is seen in the map, and more than once.
func (s *Seen) Began(batch uint64, where []store.Bounds) {
	if s.where == nil {
		s.where = map[uint64][]store.Bounds{}
	}
	s.where[batch] = where
}

// spans returns the intervals of keys that the batches of moves in flight cover, as far as this process knows them.
func (s *Seen) spans() (out []store.Bounds) {
	for id := range s.batches {
		out = append(out, s.where[id]...)
	}
	return out
}

// Waited records that no process uses a version of the partition map below the given epoch any more. Next then returns
// the work that had to wait for this.
func (s *Seen) Waited(epoch uint64) { s.waited = max(s.waited, epoch) }

// Did records that the task t, which is work on the rows of one range, is done. The record is dropped when the task's
// batch of moves enters another phase.
func (s *Seen) Did(t Task) {
	if p := s.batches[t.Batch]; p != nil && p.phase == t.Phase {
		p.done[string(t.Range.Start)] = true
	}
}
