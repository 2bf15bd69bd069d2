package policysim

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
)

// mover holds the moves that a balancer submits; they are executed in the next step.
type mover struct {
	last []policy.Decision // of the moves that are submitted next
	jobs map[string]*scheduler.Job
	sent int
}

// task is a move that was submitted.
type task struct {
	move.Goal
	policy.Decision
	job    *scheduler.Job
	number int // of its goal in the job
}

// decided is called before the moves of decisions are submitted.
func (w *world) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	w.last = w.last[:0]
	for _, d := range ds {
		switch d.Kind {
		case policy.Split, policy.Merge, policy.Roll, policy.Refresh:
			w.last = append(w.last, d)
		}
	}
	if w.observe != nil {
		w.observe(id, in, ds)
	}
}

// Submit implements balancer.Mover.
func (w *world) Submit(id store.BucketID, _ string, p *scheduler.Plan) scheduler.Job {
	b := w.of[id]
	w.sent++
	j := &scheduler.Job{ID: strconv.Itoa(w.sent), Bucket: id, Goals: make([]scheduler.GoalState, len(p.Moves))}
	if w.jobs == nil {
		w.jobs = map[string]*scheduler.Job{}
	}
	w.jobs[j.ID] = j
	for i, m := range p.Moves {
		b.todo = append(b.todo, task{m, w.last[i], j, i})
		from, to := b.span(&m)
		for _, x := range b.parts[from:to] {
			x.moves = true
		}
	}
	return *j
}

// Job implements balancer.Mover.
func (w *world) Job(id string) (scheduler.Job, bool) {
	j := w.jobs[id]
	if j == nil {
		return scheduler.Job{}, false
	}
	if !j.Ended.IsZero() {
		delete(w.jobs, id)
	}
	return *j, true
}

// Held implements balancer.Mover.
func (w *world) Held(store.BucketID) bool { return false }

// InFlight implements balancer.Mover: scenarios have no budget.
func (w *world) InFlight() (moves int, rows int64) { return 0, 0 }

// KeepUp implements balancer.Mover.
func (w *world) KeepUp(store.BucketID, int) {}

// Pace implements balancer.Mover.
func (w *world) Pace(ctx context.Context, _ int) error { return ctx.Err() }

// span finds the parts of a goal.
func (b *bucket) span(g *move.Goal) (from, to int) {
	find := func(key []byte) int {
		return sort.Search(len(b.parts), func(i int) bool { return bytes.Compare(b.parts[i].start, key) >= 0 })
	}
	if from, to = find(g.Start), len(b.parts); len(g.End) > 0 {
		to = find(g.End)
	}
	return from, to
}

// execute makes the moves that were submitted in the step before.
func (w *world) execute(b *bucket) {
	if len(b.todo) == 0 {
		return
	}
	todo := b.todo
	b.todo, b.changed = nil, true
	slices.SortFunc(todo, func(a, b task) int { return cmp.Compare(a.From, b.From) })
	var parts []*part
	at := 0
	for i := range todo {
		t := &todo[i]
		from, to := b.span(&t.Goal)
		news, moved := w.recut(b, b.parts[from:to], t)
		parts = append(append(parts, b.parts[at:from]...), news...)
		at = to
		t.job.Ended = w.now
		g := &t.job.Goals[t.number]
		g.Stage, g.Copied = scheduler.Met, moved
	}
	b.parts = append(parts, b.parts[at:]...)
}

// undone is within what time the reverse of a split or merge counts as undoing it.
const undone = 24 * time.Hour

// recut cuts parts anew, and returns how many rows that moves.
func (w *world) recut(b *bucket, olds []*part, t *task) (out []*part, moved int64) {
	switch t.Kind {
	case policy.Split:
		b.g.Splits++
	case policy.Merge:
		b.g.Merges++
	case policy.Roll:
		b.g.Rolls++
	case policy.Refresh:
		b.g.Refreshes++
	}
	var rows []row
	for _, x := range olds {
		rows = append(rows, x.sorted()...)
		switch {
		case t.Kind == policy.Split && !x.merged.IsZero() && w.now.Sub(x.merged) < undone:
			b.g.MergesUndone++
		case t.Kind == policy.Merge && !x.split.IsZero() && w.now.Sub(x.split) < undone:
			b.g.SplitsUndone++
		}
		x.moves = false
	}
	for k := range len(t.Goal.Cuts) + 1 {
		start, n := olds[0].start, len(rows)
		if k > 0 {
			start = t.Goal.Cuts[k-1]
		}
		if k < len(t.Goal.Cuts) {
			end := number(t.Goal.Cuts[k])
			n = sort.Search(len(rows), func(i int) bool { return rows[i].key >= end })
		}
		x := olds[0]
		if k == t.Goal.Stay {
			x.start, x.rows = start, slices.Clone(rows[:n])
		} else {
			x = w.part(start, rows[:n])
			if n > 0 {
				b.g.moved(t.Decision.Why, int64(n))
				moved += int64(n)
			}
		}
		x.split, x.merged, x.overFrom = time.Time{}, time.Time{}, time.Time{}
		switch t.Kind {
		case policy.Split:
			x.split = w.now
		case policy.Merge:
			x.merged = w.now
		}
		out = append(out, x)
		rows = rows[n:]
	}
	if t.Goal.Stay < 0 {
		for _, x := range olds {
			delete(w.parts, x.id)
		}
	}
	return out, moved
}
