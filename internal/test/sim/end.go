package sim

import (
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// settled holds the map and the store to what a round of moves leads to (I10):
// the layout that was wanted, and nothing left behind.
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
			w.s.fail("I10: the range from %q is %s (sweep pending: %v) when all moves are done", rg.Start, rg.Phase,
				rg.SweepPending)
		}
		if i > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	if !w.c.Loose && !slices.Equal(cuts, want) {
		w.s.fail("I10: the cuts are %q instead of %q", cuts, want)
	}
	ctx := context.Background()
	parts, err := w.mem.Partitions(ctx, store.Partition{}, 10_000)
	if err != nil {
		w.s.fail("I10: %v", err)
	}
	for _, p := range parts {
		if p.Bucket == w.bucket && !homes[p.ID] {
			w.s.fail("I10: partition %s has rows, but no range is there", name(p.ID))
		}
	}
	for _, rg := range w.watch.ranges {
		page, err := w.mem.Slice(ctx, store.Partition{Bucket: w.bucket, ID: rg.Partition}, store.Bounds{},
			store.SliceOptions{Limit: 10_000})
		if err != nil {
			w.s.fail("I10: %v", err)
		}
		for _, row := range page.Rows {
			if !slices.ContainsFunc(w.watch.ranges,
				func(o partmap.Range) bool { return o.Partition == rg.Partition && o.Contains(row.Key) }) {
				w.s.fail("I10: %s has the row %q, which is outside of its ranges", name(rg.Partition), row.Key)
			}
			if store.IsMarker(row.Value) && !w.c.faulty() && w.c.Net == nil {
				w.s.fail("I10: %s has a marker of %q left", name(rg.Partition), row.Key)
			}
		}
	}
}

// last reads everything once more, when all that could come late has come.
func (w *world) last() {
	w.faults.Enable(false)
	if err := w.faults.Flush(context.Background()); err != nil {
		w.s.fail("flush: %v", err)
	}
	if w.h.over() {
		if err := w.h.gone(); err != nil {
			w.s.fail("last: %v", err)
		}
		return
	}
	if w.watch.closing() {
		return // nobody has found it old
	}
	c, err := listing.New(w.mem, mapclient.NewEmbedded(w.mem, mapclient.Options{}), listing.Options{})
	if err != nil {
		w.s.fail("last: %v", err)
		return
	}
	before, found := w.h.view(), map[string]string{}
	for e, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
		if err != nil {
			w.s.fail("last listing: %v", err)
		}
		found[string(e.Key)] = string(e.Value)
	}
	for _, k := range w.keys {
		v, shown := found[k]
		if err := w.h.read(before, k, shown, v); err != nil {
			w.s.fail("last listing: %v", err)
		}
	}
	w.verified(c)
}

// verified checks the whole store as operators do. A write that comes late, or of a
// process that stood still past its lease, may leave a marker after its range was
// swept; that has to mend.
func (w *world) verified(c *listing.Client) {
	if w.c.Mistakes != (Mistakes{}) {
		return // those are for the invariants to find
	}
	late := w.c.faulty() || w.c.Net != nil
	left := false
	check := func(mend bool) {
		_, err := repair.New(w.mem, c, repair.Options{Repair: mend, Report: func(x repair.Finding) {
			switch {
			case x.Kind == repair.LeftMarker && mend:
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
