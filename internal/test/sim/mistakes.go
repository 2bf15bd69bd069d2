package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Mistakes are violations of the protocol; the zero value makes none. The first groups
// are the lists in docs/why-not-simpler.md. Wrappers of stores, of map clients and of clocks
// make them, so the code under test is the product's.
type Mistakes struct {
	// PlainDeletes: deletes write tombstones during a move.
	PlainDeletes bool
	// DeleteBoth: deletes write tombstones in both partitions.
	DeleteBoth bool
	// NoWait between phases.
	NoWait bool
	// NoRewait: a mover waits only after its own swaps.
	NoRewait bool
	// SkipMarking: moves begin in copying.
	SkipMarking bool
	// FreshTimestamps: copies get the time of the copy.
	FreshTimestamps bool
	// LoseMarkers: markers are not copied.
	LoseMarkers bool
	// SkipDraining: the source is removed while reads still look at it.
	SkipDraining bool
	// RedoElsewhere: a write of unknown outcome is repeated later, in the partition that
	// the range has then, and acknowledged.
	RedoElsewhere bool
	// LateSweep: markers are swept when the next move copies.
	LateSweep bool
	// SweepUnchecked: a sweep does not check the root.
	SweepUnchecked bool
	// NoWriteThrough: readers in verifying show rows that only the source has, and do not
	// write them to the destination.
	NoWriteThrough bool
	// PlainCopies: copies are written as entries, not as copies.
	PlainCopies bool
	// NoUncopy: verifying keeps copies of rows that the source has lost.
	NoUncopy bool
	// NoDeleteThrough: readers in verifying do not delete such copies.
	NoDeleteThrough bool
	// DeleteThroughAtOnce: readers delete a copy without reading the source again.
	DeleteThroughAtOnce bool
	// UncopyUnchecked: verifying deletes copies without checking the root.
	UncopyUnchecked bool
	// MixedMerge: the sources of a merge are in different phases.
	MixedMerge bool

	// Network form, where leases hold for a time.

	// BumpFirst: the clock is bumped before the root is swapped.
	BumpFirst bool
	// RootBeforeClock: clients read the root before the clock.
	RootBeforeClock bool
	// NoLookAfterWrite, NoLookAfterRead: the lease is not checked after the I/O.
	NoLookAfterWrite, NoLookAfterRead bool
	// ActWhileClosing: clients treat a closing bucket as open.
	ActWhileClosing bool
	// WaitByFirstClock: a wait ends when the first of the two clocks says so; the wall
	// clock may have been set.
	WaitByFirstClock bool
	// OthersBump: a bump by another process counts, though it came before the
	// acknowledgement of the own swap.
	OthersBump bool
	// CollectByAge: map nodes are collected once they are old, though a swap that
	// names them may be pending.
	CollectByAge bool
	// TornRoot: clients believe the content of a torn root.
	TornRoot bool

	// Others.

	// LeaseByMonotonic: leases are held by the monotonic clock alone, which stops
	// with the machine.
	LeaseByMonotonic bool
	// RootUnacknowledged, BumpUnacknowledged: waits begin at a root or at a bump that
	// other replicas do not show yet.
	RootUnacknowledged, BumpUnacknowledged bool
	// ShortLease: movers believe in a shorter lease than clients.
	ShortLease bool
	// EmptyAtHome: the deleter of a bucket checks the homes of ranges and not their
	// destinations.
	EmptyAtHome bool
	// OwnClock: timestamps come from the writers' own clocks, up to half a second off.
	OwnClock bool
	// NoPassing: writes are acknowledged before their timestamps have passed.
	NoPassing bool

	// NoVerify: verifying does not copy missing rows.
	NoVerify bool
	// RemoveWhole: the whole partition is removed, though a part of it stays.
	RemoveWhole bool
	// RemoveOld: removals have lower timestamps than the rows.
	RemoveOld bool
	// UsedDestination: a destination was used before.
	UsedDestination bool
	// SkipSweep: sweeps are reported as done and are not.
	SkipSweep bool
	// TornPage: rows are lost from a page of a source, and the scan continues after it.
	TornPage bool

	// PurgeNewer: the deletion of a range hides all that is there when its removal is sent, also what came after the call
	// had begun.
	PurgeNewer bool
	// PurgeUnknown: a removal of unknown outcome counts, and lands later.
	PurgeUnknown bool
	// PurgeByCall: what is older than a time is deleted with the timestamp of the call.
	PurgeByCall bool

	// With two data centres.

	// NearConfirm: a reader in verifying takes what its own data centre has for what all have.
	NearConfirm bool
	// NearPurge: the deletion of a range takes what its own data centre lacks for what all lack.
	NearPurge bool
	// NearMover: movers read and write in their own data centre.
	NearMover bool
	// NoReadRepair: reads at each quorum leave a data centre without what it lacks.
	NoReadRepair bool

	// NearCleaner: cleaners of objects read and write in their own data centre.
	NearCleaner bool
	// ReadBeforeMark: an adoption reads the source before it takes its mark.
	ReadBeforeMark bool
	// NearCatchUp: a catch-up takes what its own data centre lacks for what all lack.
	NearCatchUp bool

	// With restores of snapshots.

	// NoNotes: a mover leaves no note in what it empties.
	NoNotes bool
	// PurgeForMove: a repair takes the removal of a purge for that of a move.
	PurgeForMove bool
	// NearRepair: a repair reads and writes in one data centre.
	NearRepair bool
	// FarSnapshots: nodes take their snapshots of rows at moments that are any time apart, without a pause.
	FarSnapshots bool
	// LateMaps: snapshots of maps are taken any time after those of rows, which are not of one moment.
	LateMaps bool

	// Unwatched turns off the invariants of the inside: only answers to clients can
	// reveal a mistake.
	Unwatched bool
}

// clientStore is the store of one client, with its mistakes.
type clientStore struct {
	store.Store
	m     Mistakes
	world *world
	r     *rand.Rand
	late  int
}

// Slice makes the mistake EmptyAtHome, and short pages for clients that read ahead.
func (c *clientStore) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if c.m.EmptyAtHome {
		if rg, found := c.world.watch.rangeOf(p.ID, b.Start); found && rg.To == p.ID && c.world.watch.closing() {
			return store.Page{}, nil
		}
	}
	if c.world.c.Ahead {
		o.Limit = min(o.Limit, 2)
	}
	return c.Store.Slice(ctx, p, b, o)
}

// hasty is the store of a client that makes the mistake DeleteThroughAtOnce: its second
// read of the source, at each quorum, finds nothing.
type hasty struct{ *clientStore }

func (c hasty) EachQuorum() store.Rows { return blind{c} }

type blind struct{ store.Rows }

func (blind) Get(context.Context, store.Partition, []byte) (store.Row, bool, error) {
	return store.Row{}, false, nil
}

func (c *clientStore) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	a := actorOf(ctx)
	if !a.client || p.Bucket != c.world.bucket {
		return c.Store.Put(ctx, p, rows...)
	}
	if c.m.PurgeByCall {
		var err error
		rows = slices.Clone(rows)
		if rows[0].Timestamp, err = c.purgesAt(ctx, rows[0].Timestamp); err != nil {
			return err
		}
	}
	reads := opOf(ctx).write == nil
	if reads {
		if c.m.NoWriteThrough {
			return nil
		}
		if c.m.PlainCopies {
			rows = originals(rows)
		}
		return c.Store.Put(ctx, p, rows...)
	}
	if store.IsMarker(rows[0].Value) && (c.m.PlainDeletes || c.m.DeleteBoth) {
		ids := []store.PartitionID{p.ID}
		if src, dst := c.world.watch.ends(rows[0].Key); c.m.DeleteBoth && !dst.IsZero() {
			ids = []store.PartitionID{src, dst}
		}
		for _, id := range ids {
			if err := c.Store.Delete(ctx, store.Partition{Bucket: p.Bucket, ID: id}, rows[0].Key,
				rows[0].Timestamp); err != nil {
				return err
			}
		}
		return nil
	}
	late := c.world.c.Late > 0 && c.r.Float64() < c.world.c.Late
	if c.m.RedoElsewhere && late {
		return c.redo(ctx, p, rows[0])
	}
	if late {
		return c.landLater(ctx, p, rows[0].Key, func(ctx context.Context) { _ = c.Store.Put(ctx, p, rows...) })
	}
	return c.Store.Put(ctx, p, rows...)
}

// Delete is a plain delete, of the settled phase; or a reader's, of a copy.
func (c *clientStore) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	a := actorOf(ctx)
	ts, err := c.purgesAt(ctx, ts)
	switch {
	case err != nil:
		return err
	case !a.client || p.Bucket != c.world.bucket:
	case opOf(ctx).write == nil:
		if c.m.NoDeleteThrough {
			return nil
		}
	case c.world.c.Late > 0 && c.r.Float64() < c.world.c.Late:
		return c.landLater(ctx, p, key, func(ctx context.Context) { _ = c.Store.Delete(ctx, p, key, ts) })
	}
	return c.Store.Delete(ctx, p, key, ts)
}

// Remove is of the deletion of a range.
func (c *clientStore) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	ts, err := c.purgesAt(ctx, ts)
	if err != nil {
		return err
	}
	if c.m.PurgeNewer {
		if ts, err = c.world.stamps.Next(withOp(ctx, op{}), 1); err != nil {
			return err
		}
	}
	if c.m.PurgeUnknown {
		_ = c.landLater(ctx, p, b.Start, func(ctx context.Context) { _ = c.Store.Remove(ctx, p, b, ts) })
		return nil
	}
	return c.Store.Remove(ctx, p, b, ts)
}

// purgesAt returns the timestamp at which an entry is deleted, with the mistake PurgeByCall.
func (c *clientStore) purgesAt(ctx context.Context, ts store.Timestamp) (store.Timestamp, error) {
	if w := opOf(ctx).write; !c.m.PurgeByCall || w == nil || !w.aged {
		return ts, nil
	}
	return c.world.stamps.Next(ctx, 1)
}

// landLater does a write at some later time. Nobody hears of it.
func (c *clientStore) landLater(ctx context.Context, p store.Partition, key []byte, write func(context.Context)) error {
	c.late++
	a := actorOf(ctx)
	straggler := &actor{name: fmt.Sprintf("straggler %s.%d", a.name, c.late), slow: true, centre: a.centre}
	// It does most harm where a move has just looked.
	target := partmap.Copying + partmap.Phase(c.r.IntN(2))
	straggler.ripe = func() bool {
		rg, found := c.world.watch.rangeOf(p.ID, key)
		return found && rg.Phase == target && c.world.watch.looked[p.ID] == target
	}
	ctx = withActor(context.WithoutCancel(ctx), straggler)
	c.world.actors.Go(func() { write(ctx) })
	return store.Errorf(store.Timeout, "no answer")
}

// redo is the mistake: a put was lost, and is done again when the range has moved.
func (c *clientStore) redo(ctx context.Context, p store.Partition, row store.Row) error {
	home := p.ID
	for i := 0; i < 400 && home == p.ID; i++ {
		if !c.world.s.gate(ctx, "pause before doing it again") {
			return store.Errorf(store.Timeout, "no answer")
		}
		home = c.world.watch.home(row.Key)
	}
	return c.Store.Put(ctx, store.Partition{Bucket: p.Bucket, ID: home}, row)
}

// ends returns the two ends of the move in which a key takes part.
func (w *watch) ends(key []byte) (src, dst store.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rg := range w.ranges {
		if rg.Contains(key) {
			return rg.Partition, rg.To
		}
	}
	return src, dst
}

func (w *watch) home(key []byte) store.PartitionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rg := range w.ranges {
		if rg.Contains(key) {
			return rg.WriteTo()
		}
	}
	return store.PartitionID{}
}

func (w *watch) closing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root.State == partmap.Closing
}

// rangeOf returns the range in which a partition is an end.
func (w *watch) rangeOf(id store.PartitionID, key []byte) (partmap.Range, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rg := range w.ranges {
		if (rg.Partition == id || rg.To == id) && (len(key) == 0 || rg.Contains(key)) {
			return rg, true
		}
	}
	return partmap.Range{}, false
}

// moverStore is what movers read and write, with their mistakes.
type moverStore struct {
	store.Store
	m      Mistakes
	w      *watch
	stamps *stamps

	mu    sync.Mutex
	sweep map[store.PartitionID]bool // to be swept when the next move copies
}

func (m *moverStore) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	var out []store.Row
	for _, row := range rows {
		if m.m.LoseMarkers && store.IsMarker(row.Value) {
			continue
		}
		if m.m.FreshTimestamps {
			row.Timestamp, _ = m.stamps.Next(ctx, 1)
		}
		out = append(out, row)
	}
	if m.m.PlainCopies {
		out = originals(out)
	}
	if len(rows) > 0 { // what was read again may be gone
		if rg, found := m.w.rangeOf(p.ID, rows[0].Key); m.m.NoVerify && found && rg.Phase == partmap.Verifying {
			return nil
		}
	}
	return m.Store.Put(ctx, p, out...)
}

// originals are rows that do not say that they are copies.
func originals(rows []store.Row) []store.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Value = store.OriginalCell(rows[i].Value)
	}
	return rows
}

func (m *moverStore) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	rg, found := m.w.rangeOf(p.ID, b.Start)
	sweeping := found && rg.Partition == p.ID && rg.SweepPending
	copying := found && rg.Partition == p.ID && rg.Phase == partmap.Copying
	m.mu.Lock()
	late := m.m.LateSweep && copying && m.sweep[p.ID]
	if m.m.LateSweep && sweeping {
		m.sweep[p.ID] = true
	}
	m.mu.Unlock()
	if (m.m.LateSweep || m.m.SkipSweep) && sweeping {
		return store.Page{}, nil
	}
	if late {
		page, err := m.Store.Slice(ctx, p, store.Bounds{Start: b.Start, End: b.End},
			store.SliceOptions{Limit: 1000, Timestamps: true})
		if err != nil {
			return page, err
		}
		for _, row := range page.Rows {
			if store.IsMarker(row.Value) {
				if err := m.Store.Delete(ctx, p, row.Key, row.Timestamp); err != nil {
					return store.Page{}, err
				}
			}
		}
	}
	page, err := m.Store.Slice(ctx, p, b, o)
	if found && rg.Partition == p.ID {
		m.w.mu.Lock()
		m.w.looked[p.ID] = rg.Phase
		m.w.mu.Unlock()
	}
	verifying := found && rg.Partition == p.ID && rg.Phase == partmap.Verifying
	if m.m.TornPage && (copying || verifying) && err == nil && page.More {
		page.Rows = page.Rows[len(page.Rows)-1:]
	}
	return page, err
}

func (m *moverStore) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if rg, found := m.w.rangeOf(p.ID, key); m.m.NoUncopy && found && rg.To == p.ID {
		return nil
	}
	return m.Store.Delete(ctx, p, key, ts)
}

func (m *moverStore) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	if m.m.RemoveWhole {
		b = store.Bounds{}
	}
	if m.m.RemoveOld {
		ts = 1
	}
	return m.Store.Remove(ctx, p, b, ts)
}

// moverMaps is the map client of one life of a mover, with its mistakes.
type moverMaps struct {
	*mapclient.Client
	m     Mistakes
	w     *watch
	p     *process // nil in the embedded form
	store store.Store

	mu      sync.Mutex
	swapped bool
	sweeps  int // sweeps, or comparisons, that are about to look at the root
	last    *partmap.Root
}

func (m *moverMaps) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	m.mu.Lock()
	if m.sweeps > 0 {
		m.sweeps--
		defer m.mu.Unlock()
		return m.last, nil
	}
	m.mu.Unlock()
	root, err := m.Client.Load(ctx, id)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last = root
	}
	return root, err
}

func (m *moverMaps) Wait(ctx context.Context, id store.BucketID) error {
	m.mu.Lock()
	skip := m.m.NoWait || m.m.NoRewait && !m.swapped
	m.swapped = false
	m.mu.Unlock()
	epoch := m.w.epoch()
	if !skip {
		if err := m.Client.Wait(ctx, id); err != nil {
			return err
		}
	}
	if m.p != nil {
		if err := m.p.w.replicas.waitedFor(id, epoch, m.p.w.c.Net.Lease); err != nil {
			m.w.violated("I6: %s: %v", m.p.a.name, err)
		}
	}
	return nil
}

func (w *watch) epoch() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root.Epoch
}

func (m *moverMaps) Swap(ctx context.Context, change partmap.Change) error {
	for i := range change.Next.Batches {
		b := &change.Next.Batches[i]
		if m.m.SkipMarking && b.Phase == partmap.Marking {
			b.Phase = partmap.Copying
		}
		if m.m.SkipDraining && b.Phase == partmap.Verifying {
			if err := m.removeSources(ctx, b.ID); err != nil {
				return err
			}
		}
	}
	if m.m.MixedMerge {
		mixMerge(change.Next)
	}
	err := m.Client.Swap(ctx, change)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swapped = m.swapped || err == nil
	return err
}

func (m *moverMaps) removeSources(ctx context.Context, batch uint64) error {
	m.w.mu.Lock()
	ranges := append([]partmap.Range(nil), m.w.ranges...)
	m.w.mu.Unlock()
	for _, rg := range ranges {
		if rg.Batch != batch || rg.To.IsZero() || rg.Phase != partmap.Copying {
			continue
		}
		p := store.Partition{Bucket: m.w.bucket, ID: rg.Partition}
		if err := m.store.Remove(ctx, p, store.Bounds{Start: rg.Start, End: rg.End}, 1<<60); err != nil {
			return err
		}
	}
	return nil
}

// mixMerge gives the first source of a merge a batch of its own, one phase ahead.
func mixMerge(r *partmap.Root) {
	if len(r.Batches) != 1 || r.Batches[0].Phase != partmap.Marking || r.Batches[0].ID < 2 {
		return
	}
	for i := range r.Entries[:max(len(r.Entries)-1, 0)] {
		a, b := &r.Entries[i], &r.Entries[i+1]
		if !a.To.IsZero() && a.To == b.To && !bytes.Equal(a.Start, b.Start) {
			early := r.Batches[0].ID - 1
			a.Batch = early
			r.Batches[0].Ranges--
			r.Batches = append([]partmap.Batch{{ID: early, Phase: partmap.Copying, Ranges: 1}}, r.Batches...)
			return
		}
	}
}
