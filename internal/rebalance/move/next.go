package move

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Input is what Next takes from outside.
type Input struct {
	// Goals that are still wanted, the most urgent first.
	Goals []Goal
	// Hold begins no move; what has begun goes on.
	Hold bool
	Now  time.Time
	// Fresh draws partition ids.
	Fresh func() store.PartitionID
	// MaxBatches is how many batches may be in flight at once, at most (and where
	// zero) partmap.MaxBatches.
	MaxBatches int
	// MaxRanges is how many ranges one batch may move; 0: any number.
	MaxRanges int
}

// ReopenAfter is how long a bucket may be closing before it counts as left
// behind by whoever wanted to delete it.
const ReopenAfter = time.Minute

// Next returns what to do now; nothing: all moves are at their end and no goal
// can begin. The same effects come again until Seen or the view change.
//
// The phases are those of the protocol. Work in a phase begins only after a wait
// that began when the phase was in the map; a batch goes on to the next phase when
// the work of all its ranges is done. Batches share: all that are ready go
// together in one swap, which waits until no wait is due.
func Next(v *View, s *Seen, in Input) []Effect {
	if v.Root.State == partmap.Deleted {
		return nil
	}
	s.look(v.Root)
	var effects []Effect
	swap := Swap{Epoch: v.Root.Epoch + 1}
	due := uint64(0) // the epoch to wait for
	for _, b := range v.Root.Batches {
		p := s.batches[b.ID]
		if s.waited < p.entered {
			due = v.Root.Epoch
			continue
		}
		tasks, over := v.tasks(b)
		left := tasks[:0]
		for _, t := range tasks {
			if !p.done[string(t.task().Range.Start)] {
				left = append(left, t)
			}
		}
		for _, t := range left {
			effects = append(effects, t)
		}
		if len(left) == 0 {
			over(&swap)
		}
	}
	if due > 0 {
		return append(effects, Wait{Epoch: due})
	}
	switch {
	case v.Root.State == partmap.Closing:
		swap.Reopen = in.Now.Sub(time.UnixMicro(v.Root.ChangedAt)) > ReopenAfter
	case !in.Hold:
		v.begin(&swap, in)
	}
	if swap.empty() {
		return effects
	}
	return append(effects, swap)
}

func (e *Swap) empty() bool {
	return len(e.Advance)+len(e.Settle)+len(e.Swept)+len(e.Begin) == 0 && !e.Reopen
}

// work is an effect on one range.
type work interface {
	Effect
	task() *Task
}

func (e Copy) task() *Task   { return &e.Task }
func (e Verify) task() *Task { return &e.Task }
func (e Remove) task() *Task { return &e.Task }
func (e Sweep) task() *Task  { return &e.Task }

// tasks returns the work of a batch's phase, and what the next swap does with the
// batch once all of it is done.
func (v *View) tasks(b partmap.Batch) (tasks []work, over func(*Swap)) {
	advance := func(swap *Swap) {
		to, _ := partmap.Next(b.Phase)
		swap.Advance = append(swap.Advance, Step{Batch: b.ID, To: to})
	}
	ranges := v.of(b.ID)
	each := func(f func(Task) work) []work {
		for _, rg := range ranges {
			tasks = append(tasks, f(Task{Batch: b.ID, Phase: b.Phase, Range: rg}))
		}
		return tasks
	}
	switch b.Phase {
	case partmap.Marking:
		return nil, advance
	case partmap.Copying:
		return each(func(t Task) work { return Copy{t} }), advance
	case partmap.Verifying:
		return each(func(t Task) work { return Verify{t} }), advance
	case partmap.Draining:
		return v.removals(b, ranges), func(swap *Swap) {
			swap.Settle = append(swap.Settle, Settlement{Batch: b.ID, Spans: spans(ranges)})
		}
	default: // settled: its sweep is pending
		return each(func(t Task) work { return Sweep{t} }), func(swap *Swap) { swap.Swept = append(swap.Swept, b.ID) }
	}
}

// removals are the tasks of a draining batch, one for each source.
func (v *View) removals(b partmap.Batch, ranges []partmap.Range) (tasks []work) {
	var sources []store.PartitionID
	of := map[store.PartitionID][]partmap.Range{}
	for _, rg := range ranges {
		if len(of[rg.Partition]) == 0 {
			sources = append(sources, rg.Partition)
		}
		of[rg.Partition] = append(of[rg.Partition], rg)
	}
	for _, id := range sources {
		tasks = append(tasks, Remove{Task{Batch: b.ID, Phase: b.Phase, Range: of[id][0]}, of[id], v.whole(b.ID, id)})
	}
	return tasks
}

// whole reports whether a source has nothing but ranges that are draining away
// from it in this batch. The ranges of one partition are all in the view.
func (v *View) whole(batch uint64, source store.PartitionID) bool {
	return !slices.ContainsFunc(v.Ranges, func(rg partmap.Range) bool {
		return rg.To == source || rg.Partition == source && (rg.Batch != batch || !moving(&rg))
	})
}

// spans joins neighbouring ranges.
func spans(ranges []partmap.Range) (out []partmap.Span) {
	for _, rg := range ranges {
		if n := len(out); n > 0 && string(out[n-1].End) == string(rg.Start) {
			out[n-1].End = rg.End
		} else {
			out = append(out, partmap.Span{Start: rg.Start, End: rg.End})
		}
	}
	return out
}

// begin puts all goals that are ready and do not touch each other into one batch.
func (v *View) begin(swap *Swap, in Input) {
	most := partmap.MaxBatches
	if in.MaxBatches > 0 {
		most = min(most, in.MaxBatches)
	}
	if len(v.Root.Batches) >= most {
		return
	}
	taken := map[store.PartitionID]bool{}
	ranges := 0
	for i := range in.Goals {
		g := &in.Goals[i]
		verdict, move, _ := g.Judge(v, in.Now, in.Fresh)
		if verdict != Ready {
			continue
		}
		touched, _ := v.within(g.Start, g.End)
		if slices.ContainsFunc(touched, func(rg partmap.Range) bool { return taken[rg.Partition] }) {
			continue
		}
		n := max(len(touched), len(move.Parts))
		if in.MaxRanges > 0 && ranges > 0 && ranges+n > in.MaxRanges {
			continue
		}
		ranges += n
		for _, rg := range touched {
			taken[rg.Partition] = true
		}
		swap.Begin, swap.Goals = append(swap.Begin, move), append(swap.Goals, *g)
	}
}
