package executor

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// do carries out the effect e, which is one step of a move such as a change of the partition map, and reports its
// result to Options.Observe. Before and after the effect, tests may stop the executor at failpoints.
func (x *Executor) do(ctx context.Context, v *move.View, e move.Effect) error {
	name := pointOf(e)
	if err := x.failpoint(ctx, "before "+name, e.Key()); err != nil {
		return err
	}
	err := x.effect(ctx, v, e)
	x.o.Observe(Event{Kind: Did, Effect: e, Err: err})
	if err != nil {
		return store.Wrap(e.String(), err)
	}
	return x.failpoint(ctx, "after "+name, e.Key())
}

// effect carries out the effect e, which is one step of a move: a wait, a change of the partition map, work on rows, or
// the deletion of old map nodes.
func (x *Executor) effect(ctx context.Context, v *move.View, e move.Effect) error {
	switch e := e.(type) {
	case move.Wait:
		return x.maps.Wait(ctx, x.bucket)
	case move.Swap:
		return x.swap(ctx, v, &e)
	case move.Task:
		return x.task(ctx, &e)
	case move.Collect:
		return x.collect(ctx, e.Nodes)
	}
	return store.Errorf(store.InvalidArgument, "unknown effect %T", e)
}

// task carries out the work t on the rows of one range: copying, comparing, removing, or deleting leftover deletion
// markers. It first waits until few enough ranges are worked on, in this bucket and in all buckets (Options.Room).
func (x *Executor) task(ctx context.Context, t *move.Task) error {
	slots, work := x.slots, x.copy
	switch t.Phase {
	case partmap.Verifying:
		work = x.compare
	case partmap.Draining:
		work = x.remove
	case partmap.Settled:
		slots, work = x.sweeps, x.sweep
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		end, err := x.o.Room(ctx, t.Phase == partmap.Settled)
		if err != nil {
			return err
		}
		defer end()
		return work(ctx, t)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// swap makes the change of the bucket's partition map that the step e asks for. It replaces the root, which is the
// record that names the map's nodes. If the outcome of the write is unknown, swap reads the root again, and succeeds if
// the new root is there.
func (x *Executor) swap(ctx context.Context, v *move.View, e *move.Swap) error {
	// If the root is not the new one, the change may still happen later; then the next swap fails with a Conflict.
	change, err := x.change(ctx, v, e)
	if err != nil {
		return err
	}
	left := func() {}
	if x.o.Gate != nil && len(e.Begin) > 0 {
		if err := x.o.Gate.Begin(ctx, x.bucket, change.Old.Epoch); err != nil {
			return err
		}
		left = func() { x.o.Gate.End(x.bucket, change.Old.Epoch) }
	}
	err = x.maps.Swap(ctx, change)
	if !store.OutcomeUnknown(err) {
		if err == nil || store.KindOf(err) == store.Conflict {
			left()
		}
		return err
	}
	if err := x.failpoint(ctx, "swap unknown", ""); err != nil {
		return err
	}
	now, lerr := x.maps.Load(ctx, x.bucket)
	if lerr == nil && now.Epoch > change.Old.Epoch {
		left()
	}
	if lerr == nil && now.Token == change.Next.Token {
		return nil
	}
	return err
}

// change computes the change of the bucket's partition map for one step of a move. The parameter e is the step, and v
// has the present map. change writes nothing.
func (x *Executor) change(ctx context.Context, v *move.View, e *move.Swap) (partmap.Change, error) {
	old := v.Root
	if e.Reopen {
		return mapclient.WithState(old, partmap.Open, x.maps.Stamp())
	}
	edit := partmap.NewEdit(old, x.maps.Stamp(), x.reader(ctx))
	// Change returns the first error of these.
	for _, s := range e.Advance {
		_ = edit.Advance(s.Batch)
	}
	for _, s := range e.Settle {
		_ = edit.Settle(s.Batch, s.Spans...)
	}
	_ = edit.Swept(e.Swept...)
	if len(e.Begin) > 0 {
		// No move begins on a broken map.
		if err := x.validate(ctx, v); err != nil {
			return partmap.Change{}, err
		}
		_, _ = edit.Begin(e.Begin...)
	}
	return edit.Change()
}

// partition returns the full name of a partition of the executor's bucket: the bucket and the partition's id.
func (x *Executor) partition(id store.PartitionID) store.Partition {
	return store.Partition{Bucket: x.bucket, ID: id}
}

// failpoint lets a test stop the executor at a named point of its work. It calls Options.Failpoint, if set. An error
// that the test returns ends the executor without retries, as if the process had been killed.
func (x *Executor) failpoint(ctx context.Context, point, detail string) error {
	if err := x.o.Failpoint(ctx, point, detail); err != nil {
		return killed{fmt.Errorf("failpoint %q: %w", point, err)}
	}
	return nil
}

// pointOf returns the name of the failpoints before and after the effect e, which is one step of a move: e.g. "copy" or
// "wait". The name of a change of the partition map contains the phase that moves enter by it, as in "swap draining".
func pointOf(e move.Effect) string {
	switch e := e.(type) {
	case move.Wait:
		return "wait"
	case move.Task:
		return e.Name()
	case move.Collect:
		return "collect"
	case move.Swap:
		switch {
		case e.Reopen:
			return "swap reopen"
		case len(e.Begin) > 0:
			return "swap marking"
		case len(e.Advance) > 0:
			return "swap " + e.Advance[0].To.String()
		case len(e.Settle) > 0:
			return "swap settled"
		}
		return "swap swept"
	}
	return "unknown"
}
