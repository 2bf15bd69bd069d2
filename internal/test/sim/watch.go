package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// watch is a store that sees all calls, below the injected faults, and checks the invariants of the move protocol.
type watch struct {
	store.Store // the one in memory
	s           *scheduler
	h           *proof
	bucket      store.BucketID
	off         bool // violations are not reported
	network     bool

	mu      sync.Mutex
	root    *partmap.Root
	ranges  []partmap.Range
	touched map[store.PartitionID]bool
	named   map[store.PartitionID]bool // ever, as home or destination
	removed []removal
	// looked is, for each source of a move, the phase in which a mover last read from the source.
	looked  map[store.PartitionID]partmap.Phase
	markers map[marker]uint64 // the epoch at which each was first written
	swaps   int
	phases  map[partmap.Phase]int
	// stages has, at each epoch of the map, how many times the map has changed for each key. One change is one phase of
	// a move.
	keys   []string
	stages map[uint64]*epoch
	held   []held
	leases int // checked
}

// epoch is the state of the map at one epoch, which is a numbered version of the map.
type epoch struct {
	ranges []partmap.Range
	stage  []int // by key
}

// held is a lease of the map that a client has acquired.
type held struct {
	p     *process
	lease *mapclient.Lease
	taken time.Time
}

type marker struct {
	partition store.PartitionID
	key       string
	ts        store.Timestamp
}

type removal struct {
	partition store.PartitionID
	bounds    store.Bounds
}

func (w *watch) reader(id store.NodeID) ([]byte, error) {
	return w.Node(context.Background(), w.bucket, id)
}

// adopt reads the first root of the map, before the run starts.
func (w *watch) adopt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took()
}

// took reads the current root of the map, and checks the root against the one before.
func (w *watch) took() {
	rec, err := w.Read(context.Background(), store.Roots, w.bucket[:], store.Serial)
	if err != nil {
		return // the bucket is not there yet
	}
	root, err := partmap.DecodeRoot(w.bucket, rec)
	if err != nil {
		w.violated("I1: the root can't be read: %v", err)
		return
	}
	for _, p := range partmap.Validate(root, w.reader) {
		w.violated("I1: epoch %d: %s", root.Epoch, p.Text)
	}
	w.neighbours(root)
	w.complete(root)
	if root.State == partmap.Deleted {
		if err := w.h.gone(); err != nil {
			w.violated("I2: %v", err)
		}
	}
	before := w.ranges
	w.root, w.ranges = root, nil
	defer w.enter(before)
	for rg, err := range partmap.Ranges(root, w.reader, nil, nil) {
		if err != nil {
			w.violated("I1: epoch %d: %v", root.Epoch, err)
			return
		}
		w.ranges = append(w.ranges, rg)
		w.phases[rg.Phase]++
		if !rg.To.IsZero() && !w.named[rg.To] {
			if w.touched[rg.To] {
				w.violated("I4: the destination %s was written to before its move began", name(rg.To))
			}
			w.named[rg.To] = true
		}
	}
	for _, rg := range w.ranges {
		w.named[rg.Partition] = true
	}
}

// enter records the epoch of the map that has just begun. before are the ranges of the epoch before.
func (w *watch) enter(before []partmap.Range) {
	e := &epoch{ranges: w.ranges, stage: make([]int, len(w.keys))}
	was := w.stages[w.root.Epoch-1]
	for i, key := range w.keys {
		now, _ := find(w.ranges, key)
		old, found := find(before, key)
		if was != nil && found {
			e.stage[i] = was.stage[i]
			if now.Partition != old.Partition || now.To != old.To || now.Phase != old.Phase {
				e.stage[i]++
			}
		}
	}
	w.stages[w.root.Epoch] = e
}

func find(ranges []partmap.Range, key string) (partmap.Range, bool) {
	for _, rg := range ranges {
		if rg.Contains([]byte(key)) {
			return rg, true
		}
	}
	return partmap.Range{}, false
}

// leased records a lease on which a client of the process p will act.
func (w *watch) leased(p *process, l *mapclient.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := held{p, l, time.Now()}
	i := slices.IndexFunc(w.held, func(h held) bool { return h.p == p && h.lease.Root().Epoch == l.Root().Epoch })
	if i >= 0 {
		w.held[i] = now // it lasts at least as long
		return
	}
	w.held = append(w.held, now)
}

// always checks invariant I3 before every step: for each key, all valid leases are on the current phase of the key's
// range or on the phase before.
func (w *watch) always() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) == 0 {
		return
	}
	now := w.stages[w.root.Epoch]
	kept := w.held[:0]
	for _, h := range w.held {
		if !h.lease.Valid() {
			// It may become valid again, by a clock that is set back.
			if time.Since(h.taken) < 4*h.p.w.c.Net.Lease {
				kept = append(kept, h)
			}
			continue
		}
		kept = append(kept, h)
		w.leases++
		then := w.stages[h.lease.Root().Epoch]
		if then == nil {
			w.violated("I9: %s has a lease on epoch %d, which never existed", h.p.a.name, h.lease.Root().Epoch)
			continue
		}
		for i := range w.keys {
			if then == now {
				break
			}
			if now.stage[i]-then.stage[i] > 1 {
				w.violated("I3: %s has a lease on epoch %d, the map is at %d: the range of %q is %d phases ahead",
					h.p.a.name, h.lease.Root().Epoch, w.root.Epoch, w.keys[i], now.stage[i]-then.stage[i])
				break
			}
		}
		if w.root.State == partmap.Deleted {
			w.violated("I3: %s has a lease on epoch %d, but the bucket is deleted", h.p.a.name, h.lease.Root().Epoch)
		}
	}
	clear(w.held[len(kept):])
	w.held = kept
}

// reading returns a description of a valid lease that allows reads of the partition id within b, or "" if no lease
// does. The caller holds the lock.
func (w *watch) reading(id store.PartitionID, b store.Bounds) string {
	for _, h := range w.held {
		then := w.stages[h.lease.Root().Epoch]
		if then == nil || !h.lease.Valid() {
			continue
		}
		for _, rg := range then.ranges {
			rules := rg.Phase.Rules()
			if overlap(b.Start, b.End, rg.Start, rg.End) &&
				(rules.ReadSource && rg.Partition == id || rules.ReadDestination && rg.To == id) {
				return fmt.Sprintf("%s, on epoch %d", h.p.a.name, h.lease.Root().Epoch)
			}
		}
	}
	return ""
}

// neighbours checks that each batch of moving ranges advances by at most one phase at a time. next is the new root.
func (w *watch) neighbours(next *partmap.Root) {
	if w.root == nil {
		return
	}
	for _, b := range next.Batches {
		was, _ := w.root.BatchOf(b.ID)
		if b.Phase != was && b.Phase != (was+1)%(partmap.Draining+1) {
			w.violated("I3: batch %d goes from %s to %s", b.ID, was, b.Phase)
		}
	}
}

// complete checks, when clients stop reading the source of a move, that the destination has all rows that were
// acknowledged or shown. next is the new root.
func (w *watch) complete(next *partmap.Root) {
	for _, rg := range w.ranges {
		if phase, _ := next.BatchOf(rg.Batch); !moving(&rg) || rg.Phase != partmap.Verifying ||
			phase != partmap.Draining {
			continue
		}
		src, dst := store.Partition{Bucket: w.bucket, ID: rg.Partition}, store.Partition{Bucket: w.bucket, ID: rg.To}
		page, err := w.Slice(context.Background(), src, store.Bounds{Start: rg.Start, End: rg.End},
			store.SliceOptions{Limit: 10_000, Timestamps: true})
		if err != nil {
			w.violated("I5: %v", err)
		}
		for _, row := range page.Rows {
			theirs, found, err := w.Get(context.Background(), dst, row.Key)
			if err != nil {
				w.violated("I5: %v", err)
			}
			if w.h.proven(row) && (!found || theirs.Timestamp < row.Timestamp) {
				w.violated("I5: row %q with timestamp %d is left behind in the source %s", row.Key, row.Timestamp,
					name(rg.Partition))
			}
		}
		page, err = w.Slice(context.Background(), dst, store.Bounds{Start: rg.Start, End: rg.End},
			store.SliceOptions{Limit: 10_000, Timestamps: true})
		if err != nil {
			w.violated("I5: %v", err)
		}
		for _, row := range page.Rows {
			ours, found, err := w.Get(context.Background(), src, row.Key)
			if err != nil {
				w.violated("I5: %v", err)
			}
			if cells.IsCopied(row.Value) && w.h.undone(row) && (!found || ours.Timestamp < row.Timestamp) {
				w.violated("I5: a copy of %q with timestamp %d, deleted since, is in the destination %s", row.Key,
					row.Timestamp, name(dst.ID))
			}
		}
	}
}

// Swap swaps a register in the store, and checks the root of the map after each change.
func (w *watch) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.Store.Swap(ctx, t, key, old, next)
	if err == nil && t == store.Roots && bytes.Equal(key, w.bucket[:]) {
		w.swaps++
		w.took()
	}
	return err
}

// Put puts rows into the store, and checks that every row equals the client's write with the same timestamp.
func (w *watch) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if p.Bucket == w.bucket {
		w.mu.Lock()
		w.touched[p.ID] = true
		for _, r := range rows {
			m := marker{p.ID, string(r.Key), r.Timestamp}
			if _, known := w.markers[m]; cells.IsMarker(r.Value) && !known {
				w.markers[m] = w.root.Epoch
			}
		}
		for _, r := range rows {
			if _, end, noted := cells.Note(r.Value); noted {
				w.leaves(ctx, p, store.Bounds{Start: r.Key, End: end}, "notes that moves have emptied")
			}
		}
		w.mu.Unlock()
		for _, r := range rows {
			if err := w.h.faithful(r); err != nil && !cells.IsNote(r.Value) {
				w.violated("I5: %s into %s: %v", actorOf(ctx).name, name(p.ID), err)
			}
		}
	}
	return w.Store.Put(ctx, p, rows...)
}

func (w *watch) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if p.Bucket == w.bucket {
		w.mu.Lock()
		w.touched[p.ID] = true
		if !w.h.deletes(string(key), ts) {
			w.violated("I5: %s deletes %q at %d in %s, and nobody deletes the key", actorOf(ctx).name, key, ts,
				name(p.ID))
		}
		written, known := w.markers[marker{p.ID, string(key), ts}]
		for _, rg := range w.ranges {
			if known && !actorOf(ctx).client && moving(&rg) && rg.Partition == p.ID && rg.Contains(key) &&
				written >= rg.Batch {
				w.violated("I11: %s sweeps the marker of %q at %d in %s, which belongs to the move under way",
					actorOf(ctx).name, key, ts, name(p.ID))
			}
		}
		w.mu.Unlock()
	}
	return w.Store.Delete(ctx, p, key, ts)
}

// Remove removes rows of the store. A mover may remove only rows that no process uses any more, and a client only rows
// that the client deletes.
func (w *watch) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	if p.Bucket == w.bucket && w.h.clears(ts) {
		w.mu.Lock()
		w.touched[p.ID] = true
		for _, k := range w.keys {
			if store.Within([]byte(k), b) && !w.h.deletes(k, ts) {
				w.violated("I5: %s removes %q at %d in %s, and nobody deletes the key", actorOf(ctx).name, k, ts, name(p.ID))
			}
		}
		w.mu.Unlock()
	} else if p.Bucket == w.bucket {
		w.mu.Lock()
		w.touched[p.ID] = true
		w.leaves(ctx, p, b, "removes")
		w.removed = append(w.removed, removal{p.ID, b})
		w.mu.Unlock()
	}
	return w.Store.Remove(ctx, p, b, ts)
}

// leaves checks that no client may read the rows that a mover removes, or notes as about to be removed. how is the verb
// for the message.
func (w *watch) leaves(ctx context.Context, p store.Partition, b store.Bounds, how string) {
	for _, rg := range w.ranges {
		if overlap(b.Start, b.End, rg.Start, rg.End) &&
			(rg.To == p.ID || rg.Partition == p.ID && rg.Phase != partmap.Draining) {
			w.violated("I7: %s %s [%q, %q) of %s, where the range from %q is %s", actorOf(ctx).name, how, b.Start, b.End,
				name(p.ID), rg.Start, rg.Phase)
		}
	}
	if who := w.reading(p.ID, b); who != "" {
		w.violated("I7: %s %s [%q, %q) of %s, which %s may read", actorOf(ctx).name, how, b.Start, b.End, name(p.ID), who)
	}
}

// client checks a client's call at the moment at which the call begins. The call must fit a phase that the client's
// lease may be on: the map's current phase or a neighbouring one. write is true for writes.
func (w *watch) client(ctx context.Context, p store.Partition, b store.Bounds, write bool) {
	a := actorOf(ctx)
	if !a.client || p.Bucket != w.bucket {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := opOf(ctx); o.unleased || w.network && (o.lease == nil || !o.lease.Valid()) {
		return // its lease may be over, and then the answer does not count
	}
	for _, rg := range w.ranges {
		if overlap(b.Start, b.End, rg.Start, rg.End) && !allowed(&rg, p.ID, write) {
			w.violated("I3: %s acts on %s in [%q, %q) (write: %v), where the range from %q is %s from %s to %s",
				a.name, name(p.ID), b.Start, b.End, write, rg.Start, rg.Phase, name(rg.Partition), name(rg.To))
		}
	}
	if !write && slices.ContainsFunc(w.removed, func(r removal) bool {
		return r.partition == p.ID && overlap(b.Start, b.End, r.bounds.Start, r.bounds.End)
	}) {
		w.violated("I7: %s reads [%q, %q) of %s after it was removed", a.name, b.Start, b.End, name(p.ID))
	}
}

func moving(rg *partmap.Range) bool { return !rg.To.IsZero() }

// allowed reports whether a client may use the partition id for the range rg, if the client's lease is on the current
// phase of the range or on a neighbouring one. write is true for writes.
func allowed(rg *partmap.Range, id store.PartitionID, write bool) bool {
	if rg.Phase == partmap.Settled {
		// Its moves' last phase used its present home only.
		return id == rg.Partition
	}
	phases := []partmap.Phase{rg.Phase}
	if rg.Phase != partmap.Draining {
		phases = append(phases, rg.Phase+1)
	}
	phases = append(phases, rg.Phase-1)
	for _, phase := range phases {
		rules := phase.Rules()
		switch {
		case write && !rules.WriteDestination && id == rg.Partition,
			write && rules.WriteDestination && id == rg.To,
			!write && rules.ReadSource && id == rg.Partition,
			!write && rules.ReadDestination && id == rg.To:
			return true
		}
	}
	return false
}

// overlap reports whether the intervals [a, b) and [c, d) have a key in common. An empty end stands for no bound.
func overlap(a, b, c, d []byte) bool {
	return (len(d) == 0 || string(a) < string(d)) && (len(b) == 0 || string(c) < string(b))
}

func (w *watch) violated(format string, args ...any) {
	if !w.off {
		w.s.fail(format, args...)
	}
}
