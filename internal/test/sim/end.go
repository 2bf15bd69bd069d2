package sim

import (
	"context"
	"reflect"
	"slices"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// settled checks the map and the store after a round of moves (invariant I10). The map must have the cuts in want, and
// no move may have left rows behind.
func (w *world) settled(want []string) {
	if w.c.Mistakes.Unwatched || w.h.over() {
		return
	}
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	homes := map[store.PartitionID]bool{}
	var cuts []string
	for i, rg := range w.watch.ranges {
		homes[rg.Partition] = true
		if rg.Phase != partmap.Settled || rg.SweepPending {
			w.s.fail("I10: all moves are done, but the range from %q is in phase %s (sweep pending: %v)", rg.Start,
				rg.Phase,
				rg.SweepPending)
		}
		if i > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	if !w.c.Loose && !slices.Equal(cuts, want) {
		w.s.fail("I10: the cuts are %q, want %q", cuts, want)
	}
	ctx := context.Background()
	rows := executor.WithoutNotes(w.mem)
	parts, err := w.mem.Partitions(ctx, store.Partition{}, 10_000)
	if err != nil {
		w.s.fail("I10: %v", err)
	}
	for _, p := range parts {
		left, err := rows.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1})
		if err != nil {
			w.s.fail("I10: %v", err)
		}
		if p.Bucket == w.bucket && !homes[p.ID] && len(left.Rows) > 0 {
			w.s.fail("I10: partition %s has rows, but no range lies in it", name(p.ID))
		}
	}
	for _, rg := range w.watch.ranges {
		page, err := rows.Slice(ctx, store.Partition{Bucket: w.bucket, ID: rg.Partition}, store.Bounds{},
			store.SliceOptions{Limit: 10_000})
		if err != nil {
			w.s.fail("I10: %v", err)
		}
		for _, row := range page.Rows {
			if !slices.ContainsFunc(w.watch.ranges,
				func(o partmap.Range) bool { return o.Partition == rg.Partition && o.Contains(row.Key) }) {
				w.s.fail("I10: %s has the row %q, outside of the ranges of this partition", name(rg.Partition), row.Key)
			}
			if cells.IsMarker(row.Value) && !w.c.faulty() && w.c.Net == nil {
				w.s.fail("I10: %s still has a marker of %q", name(rg.Partition), row.Key)
			}
		}
	}
}

// lastListing compares a listing at the end of a run with the recorded writes, after all late writes are done.
func (w *world) lastListing() {
	w.faults.Enable(false)
	if err := w.faults.Flush(context.Background()); err != nil {
		w.s.fail("flush: %v", err)
	}
	if w.centres != nil {
		w.centres.heal()
		w.alike()
	}
	if w.h.over() {
		if err := w.h.gone(); err != nil {
			w.s.fail("last listing: %v", err)
		}
		return
	}
	if w.watch.closing() {
		return // the deleter died, and no call was late enough to notice
	}
	c, err := listing.New(mapclient.With(w.mem, mapclient.NewEmbedded(w.mem, mapclient.Options{})), listing.Options{})
	if err != nil {
		w.s.fail("last listing: %v", err)
		return
	}
	before, found := w.h.view(anywhere), map[string]string{}
	for e, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
		if err != nil {
			w.s.fail("last listing: %v", err)
		}
		found[string(e.Key)] = string(e.Value)
	}
	for _, k := range w.keys {
		v, shown := found[k]
		if err := w.h.read(anywhere, before, k, shown, v); err != nil {
			w.s.fail("last listing: %v", err)
		}
	}
	w.verify(c)
}

// alike checks that both data centres have the same rows at the end of a run.
func (w *world) alike() {
	ctx := context.Background()
	parts, err := w.mem.Partitions(ctx, store.Partition{}, 10_000)
	if err != nil {
		w.s.fail("last listing: %v", err)
	}
	o := store.SliceOptions{Limit: 10_000, Timestamps: true}
	for _, p := range parts {
		want, err := w.mem.Slice(ctx, p, store.Bounds{}, o)
		if err != nil {
			w.s.fail("last listing: %v", err)
		}
		for i, local := range w.centres.local {
			got, err := local.Slice(ctx, p, store.Bounds{}, o)
			if err != nil || !reflect.DeepEqual(got.Rows, want.Rows) {
				w.s.fail("last listing: data centre %d differs in %s: %v", i, name(p.ID), err)
			}
		}
	}
}

// verify checks the whole store at the end of a run, as the command rebalancer verify does. A late write, or a write of
// a process that paused past its lease, may leave a marker of a delete after its range was swept. A repair must then
// remove the marker.
func (w *world) verify(c *listing.Client) {
	if w.c.Mistakes != (Mistakes{}) {
		return // the invariants must find them
	}
	late := w.c.faulty() || w.c.Net != nil
	left := false
	check := func(fix bool) {
		_, err := repair.New(w.mem, c, repair.Options{Repair: fix, Report: func(x repair.Finding) {
			switch {
			case x.Kind == repair.LeftMarker && fix:
				left = true
			case x.Severity != repair.Info:
				w.s.fail("verify: %s", x)
			}
		}}).All(context.Background())
		if err != nil {
			w.s.fail("verify: %v", err)
		}
	}
	check(late)
	if left {
		check(false)
	}
}
