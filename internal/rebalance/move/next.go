package move

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Input has the arguments of Next that do not come from the bucket's partition map: the wanted layouts of ranges
// (goals), whether moves are paused, and the time.
type Input struct {
	// Goals are the layouts of ranges that are still wanted, the most urgent first.
	Goals []Goal
	// Hold is true if no move may begin; moves in flight go on.
	Hold bool
	Now  time.Time
	// Fresh returns a new id for a partition.
	Fresh func() store.PartitionID
}

// ReopenAfter is the time after which a bucket in the state Closing is opened again. A process closes a bucket before
// it deletes it, to check that the bucket is empty. A process that takes longer than this has given up or died.
const ReopenAfter = time.Minute

// Next returns the steps of moves that are due now, for an executor to carry out. The parameter v is the present
// partition map, s is what this process has seen done, and in has the wanted changes. While none of them changes, Next
// returns the same steps. If the result is empty, all moves have ended and no new one can begin.
func Next(v *View, s *Seen, in Input) []Effect {
	// The phases are those of docs/protocol.md. Work in a phase begins only after a wait that began when the phase was
	// in the map. A batch (group of moves) enters its next phase when the work on all of its ranges is done. All
	// batches that are ready share one change of the map. The change comes when no wait is due.
	if v.Root.State == partmap.Deleted {
		return nil
	}
	s.look(v.Root)
	var effects []Effect
	swap := Swap{Epoch: v.Root.Epoch + 1}
	waits := false // a batch still waits for leases on epochs before its phase
	for _, b := range v.Root.Batches {
		p := s.batches[b.ID]
		if s.waited < p.entered {
			waits = true
			continue
		}
		tasks, over := v.tasks(b)
		before := len(effects)
		for _, t := range tasks {
			if !p.done[string(t.Range.Start)] {
				effects = append(effects, t)
			}
		}
		if len(effects) == before {
			over(&swap)
		}
	}
	if waits {
		return append(effects, Wait{Epoch: v.Root.Epoch})
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
	return len(e.Advance) == 0 && len(e.Settle) == 0 && len(e.Swept) == 0 && len(e.Begin) == 0 && !e.Reopen
}

// tasks returns the work on rows that the batch b (a group of moves) needs in its present phase. The caller does this
// work, and then calls the function `over`, which adds the batch's next step to a change of the partition map.
func (v *View) tasks(b partmap.Batch) (tasks []Task, over func(*Swap)) {
	ranges := v.of(b.ID)
	switch b.Phase {
	case partmap.Marking:
	case partmap.Draining:
		return v.removals(b, ranges), func(swap *Swap) {
			swap.Settle = append(swap.Settle, Settlement{Batch: b.ID, Spans: spans(ranges)})
		}
	default:
		for _, rg := range ranges {
			tasks = append(tasks, Task{Batch: b.ID, Phase: b.Phase, Range: rg})
		}
	}
	if b.Phase == partmap.Settled {
		return tasks, func(swap *Swap) { swap.Swept = append(swap.Swept, b.ID) }
	}
	return tasks, func(swap *Swap) {
		swap.Advance = append(swap.Advance, Step{Batch: b.ID, To: b.Phase + 1})
	}
}

// removals returns the tasks that remove moved rows from their old partitions, one task for each old partition. The
// argument ranges has the ranges of the batch b (a group of moves), which is in the phase Draining.
func (v *View) removals(b partmap.Batch, ranges []partmap.Range) (tasks []Task) {
	of := map[store.PartitionID]int{} // index of the source's task
	for _, rg := range ranges {
		i, known := of[rg.Partition]
		if !known {
			i = len(tasks)
			of[rg.Partition] = i
			tasks = append(tasks, Task{Batch: b.ID, Phase: b.Phase, Range: rg, Whole: v.whole(b.ID, rg.Partition)})
		}
		tasks[i].Ranges = append(tasks[i].Ranges, rg)
	}
	return tasks
}

// whole reports whether a batch (a group of moves) leaves the partition source empty. The result is true if
//   - all ranges in this partition move away in this batch, and
//   - no range moves to it.
//
// The view must have all ranges of the partition.
func (v *View) whole(batch uint64, source store.PartitionID) bool {
	return !slices.ContainsFunc(v.Ranges, func(rg partmap.Range) bool {
		return rg.To == source || rg.Partition == source && (rg.Batch != batch || !moving(&rg))
	})
}

// spans returns the intervals of keys that the given ranges cover. Neighbouring ranges make one interval. The ranges
// must be in ascending order.
func spans(ranges []partmap.Range) (out []store.Bounds) {
	for _, rg := range ranges {
		if n := len(out); n > 0 && string(out[n-1].End) == string(rg.Start) {
			out[n-1].End = rg.End
		} else {
			out = append(out, store.Bounds{Start: rg.Start, End: rg.End})
		}
	}
	return out
}

// begin adds a new batch to a change of the partition map: the moves of all goals (wanted layouts of ranges) that can
// begin now. A goal waits if it shares a partition with a more urgent goal of the batch.
func (v *View) begin(swap *Swap, in Input) {
	if len(v.Root.Batches) >= mapcodec.MaxBatches {
		return
	}
	taken := map[store.PartitionID]bool{}
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
		for _, rg := range touched {
			taken[rg.Partition] = true
		}
		swap.Begin, swap.Goals = append(swap.Begin, move), append(swap.Goals, *g)
	}
}
