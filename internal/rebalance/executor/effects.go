package executor

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// do carries out one effect, between two failpoints.
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

func (x *Executor) effect(ctx context.Context, v *move.View, e move.Effect) error {
	switch e := e.(type) {
	case move.Wait:
		return x.maps.Wait(ctx, x.bucket)
	case move.Swap:
		return x.swap(ctx, v, &e)
	case move.Copy:
		return x.slot(ctx, x.slots, func() error { return x.copy(ctx, &e.Task) })
	case move.Verify:
		return x.slot(ctx, x.slots, func() error { return x.verify(ctx, &e.Task) })
	case move.Remove:
		return x.slot(ctx, x.slots, func() error { return x.remove(ctx, &e) })
	case move.Sweep:
		return x.slot(ctx, x.sweeps, func() error { return x.sweep(ctx, &e.Task) })
	case move.Collect:
		return x.collect(ctx, e.Nodes)
	}
	return store.Errorf(store.InvalidArgument, "unknown effect %T", e)
}

// slot runs f when one of slots is free.
func (x *Executor) slot(ctx context.Context, slots chan struct{}, f func() error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// swap makes the change and swaps it in. An unknown outcome is looked up: if the
// newest root is this swap's, it was applied. If it is not, the swap may be
// applied yet, which is of no consequence: then the next one meets a Conflict.
func (x *Executor) swap(ctx context.Context, v *move.View, e *move.Swap) error {
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

func (x *Executor) change(ctx context.Context, v *move.View, e *move.Swap) (partmap.Change, error) {
	old := v.Root
	if e.Reopen {
		return partmap.WithState(old, partmap.Open, x.maps.Stamp())
	}
	edit := partmap.NewEdit(old, x.maps.Stamp(), x.reader(ctx))
	// Change tells of the first of these that failed.
	for _, s := range e.Advance {
		_ = edit.Advance(s.Batch)
	}
	for _, s := range e.Settle {
		_ = edit.Settle(s.Batch, s.Spans...)
	}
	_ = edit.Swept(e.Swept...)
	if len(e.Begin) > 0 {
		// Nothing is planned on a map that does not hold together.
		if err := x.validate(ctx, v); err != nil {
			return partmap.Change{}, err
		}
		_, _ = edit.Begin(e.Begin...)
	}
	return edit.Change()
}

func (x *Executor) partition(id store.PartitionID) store.Partition {
	return store.Partition{Bucket: x.bucket, ID: id}
}

func (x *Executor) failpoint(ctx context.Context, point, detail string) error {
	if err := x.o.Failpoint(ctx, point, detail); err != nil {
		return killed{fmt.Errorf("failpoint %q: %w", point, err)}
	}
	return nil
}

// pointOf names an effect for failpoints: a swap by the phase that it leads to.
func pointOf(e move.Effect) string {
	switch e := e.(type) {
	case move.Wait:
		return "wait"
	case move.Copy:
		return "copy"
	case move.Verify:
		return "verify"
	case move.Remove:
		return "remove"
	case move.Sweep:
		return "sweep"
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

// Failpoints lists the names of all points at which Options.Failpoint is called.
func Failpoints() []string {
	var all []string
	for _, e := range []string{
		"swap marking", "wait", "swap copying", "copy", "swap verifying", "verify", "swap draining", "remove",
		"swap settled", "sweep", "swap swept", "swap reopen", "collect",
	} {
		all = append(all, "before "+e, "after "+e)
	}
	return append(all, "swap unknown", "copy batch", "verify batch", "verify lost", "sweep markers read", "sweep checked", "collect node")
}
