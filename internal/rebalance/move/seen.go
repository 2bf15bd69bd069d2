package move

import "github.com/evenkeel/evenkeel/partmap"

// Seen is what one mover has observed; zero when it starts. It is for one goroutine.
type Seen struct {
	waited  uint64
	batches map[uint64]*progress
	// where are the spans of batches in flight. Their outer cuts do not change meanwhile.
	where map[uint64][]partmap.Span
}

// progress is what is known about a batch in its present phase.
type progress struct {
	phase partmap.Phase
	// entered is an epoch at which the batch was surely in the phase: the phase's work
	// begins when no lease on an older epoch is alive. A mover that finds a batch does
	// not know when its phase began, and takes the epoch at which it looks.
	entered uint64
	done    map[string]bool // starts of ranges whose task is done
}

// look records the batches of a root, and their phases.
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

// Began records the spans of a batch, so that Look need not search for them. It may be
// called before the batch is seen, and more than once.
func (s *Seen) Began(batch uint64, where []partmap.Span) {
	if s.where == nil {
		s.where = map[uint64][]partmap.Span{}
	}
	s.where[batch] = where
}

// spans are the known spans of the batches in flight.
func (s *Seen) spans() (out []partmap.Span) {
	for id := range s.batches {
		out = append(out, s.where[id]...)
	}
	return out
}

// Waited records that nobody acts on an epoch below this one any more.
func (s *Seen) Waited(epoch uint64) { s.waited = max(s.waited, epoch) }

// Did records that a task is done. It counts only while the batch is in the same phase.
func (s *Seen) Did(t Task) {
	if p := s.batches[t.Batch]; p != nil && p.phase == t.Phase {
		p.done[string(t.Range.Start)] = true
	}
}
