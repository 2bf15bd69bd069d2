package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Mistakes are violations of the move protocol that a run makes on purpose, so that tests can show that the simulation
// finds them. The zero value makes no mistake. The first groups follow the lists in docs/why-not-simpler.md. The
// mistakes are made by wrappers of stores, map clients and clocks, so that the code under test is that of the product.
type Mistakes struct {
	// PlainDeletes makes deletes write tombstones, instead of markers, during a move.
	PlainDeletes bool
	// DeleteBoth makes deletes write tombstones in both partitions of a move.
	DeleteBoth bool
	// NoWait makes movers skip the waits between the phases of a move.
	NoWait bool
	// NoRewait makes a mover wait only after its own swaps of the map, and not after those of a mover before it.
	NoRewait bool
	// SkipMarking makes moves begin with the phase copying, without the phase marking.
	SkipMarking bool
	// FreshTimestamps gives copied rows the timestamp of the copy instead of the row's own.
	FreshTimestamps bool
	// LoseMarkers makes movers leave out markers, which record deletes, when they copy rows.
	LoseMarkers bool
	// SkipDraining makes movers remove the source of a move while clients still read the source.
	SkipDraining bool
	// RedoElsewhere makes a client repeat a write of unknown outcome later, in the partition in which the range then
	// is, and acknowledge the write.
	RedoElsewhere bool
	// LateSweep makes movers sweep the markers of a move only when the next move copies.
	LateSweep bool
	// SweepUnchecked makes a sweep of markers not check the root of the map.
	SweepUnchecked bool
	// NoWriteThrough makes readers in the phase verifying show rows that only the source has, without writing the rows
	// to the destination.
	NoWriteThrough bool
	// PlainCopies makes movers write copies as ordinary entries, without the mark that says that they are copies.
	PlainCopies bool
	// NoUncopy makes movers in the phase verifying keep copies of rows that the source has lost since.
	NoUncopy bool
	// NoDeleteThrough makes readers in the phase verifying not delete copies of rows that the source has lost since.
	NoDeleteThrough bool
	// DeleteThroughAtOnce makes readers delete a copy without reading the source a second time.
	DeleteThroughAtOnce bool
	// UncopyUnchecked makes movers in the phase verifying delete copies without checking the root of the map.
	UncopyUnchecked bool
	// MixedMerge makes the sources of a merge be in different phases.
	MixedMerge bool

	// Network form, where leases hold for a time.

	// BumpFirst makes a mover bump the map clock before it swaps the root of the map. Bumping the clock tells clients
	// that the map has changed.
	BumpFirst bool
	// RootBeforeClock makes clients read the root of the map before the map clock.
	RootBeforeClock bool
	// NoLookAfterWrite and NoLookAfterRead make clients not check their lease after the I/O of a write or a read.
	NoLookAfterWrite, NoLookAfterRead bool
	// ActWhileClosing makes clients treat a bucket that is being deleted as open.
	ActWhileClosing bool
	// WaitByFirstClock makes a mover end a wait when the first of its two clocks says so, although its wall clock may
	// have been set.
	WaitByFirstClock bool
	// OthersBump makes a mover accept a bump of the map clock by another process that came before the acknowledgement
	// of the mover's own swap.
	OthersBump bool
	// CollectByAge makes a process delete map nodes once they are old, although a swap of a root that names them may be
	// pending.
	CollectByAge bool
	// TornRoot makes clients believe the content of a torn root, which has a newer version beside older content.
	TornRoot bool

	// Others.

	// LeaseByMonotonic makes clients measure leases by the monotonic clock alone, which stops while the machine is
	// suspended.
	LeaseByMonotonic bool
	// RootUnacknowledged and BumpUnacknowledged make a mover's wait begin at a root or at a bump of the map clock that
	// other replicas do not show yet.
	RootUnacknowledged, BumpUnacknowledged bool
	// ShortLease makes movers assume a shorter lease than clients.
	ShortLease bool
	// EmptyAtHome makes the deleter of a bucket check only the present partitions of ranges, and not the destinations
	// of moves.
	EmptyAtHome bool
	// OwnClock makes writers take timestamps from their own clocks, which are up to half a second wrong.
	OwnClock bool
	// NoPassing makes clients acknowledge writes before the timestamps of the writes have passed.
	NoPassing bool

	// NoVerify makes movers in the phase verifying not copy missing rows.
	NoVerify bool
	// RemoveWhole makes movers remove a whole partition, although some of its rows stay.
	RemoveWhole bool
	// RemoveOld makes removals have lower timestamps than the removed rows.
	RemoveOld bool
	// UsedDestination makes movers choose a destination that was used before.
	UsedDestination bool
	// SkipSweep makes movers report sweeps of markers as done that they have not done.
	SkipSweep bool
	// TornPage loses rows from a page of the source, and continues the scan after the page.
	TornPage bool

	// PurgeNewer makes the deletion of a range of keys hide all rows at the time of the removal, also those that came
	// after the call had begun.
	PurgeNewer bool
	// PurgeUnknown makes a client count a removal of unknown outcome as done, although the removal is done later.
	PurgeUnknown bool
	// PurgeByCall makes a deletion of rows older than some time use the timestamp of the call.
	PurgeByCall bool

	// With two data centres.

	// NearConfirm makes a reader in the phase verifying take the rows of its own data centre for those of all.
	NearConfirm bool
	// NearPurge makes the deletion of a range of keys assume that rows which its own data centre lacks are missing in
	// all.
	NearPurge bool
	// NearMover makes movers read and write only in their own data centre.
	NearMover bool
	// NoReadRepair makes reads at EACH_QUORUM not repair a data centre that lacks a row.
	NoReadRepair bool

	// NearCleaner makes cleaners of objects read and write only in their own data centre.
	NearCleaner bool
	// ReadBeforeMark makes an adoption read the source before it takes its mark, which is the time of the copy.
	ReadBeforeMark bool
	// NearCatchUp makes a catch-up assume that rows which its own data centre lacks are missing in all.
	NearCatchUp bool

	// With restores of snapshots.

	// NoNotes makes a mover leave no note in a partition that it empties. A repair after a restore reads the notes.
	NoNotes bool
	// PurgeForMove makes a repair take a client's removal of a range of keys for the removal at the end of a move.
	PurgeForMove bool
	// NearRepair makes a repair read and write in one data centre only.
	NearRepair bool
	// FarSnapshots makes nodes take their snapshots of rows any time apart, without a pause of moves.
	FarSnapshots bool
	// LateMaps makes snapshots of maps be taken any time after those of rows, which are not of one moment.
	LateMaps bool

	// Unwatched turns off the checks of the store's inside, so that only wrong answers to clients can reveal a mistake.
	Unwatched bool
}

// clientStore is the store of one client. It makes the client's mistakes.
type clientStore struct {
	store.Store
	m     Mistakes
	world *world
	r     *rand.Rand
	late  int
}

// Slice reads a page of rows. It makes the mistake EmptyAtHome, and returns short pages to clients that read ahead.
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

// hasty is the store of a client that makes the mistake DeleteThroughAtOnce. The client's second read of the source, at
// EACH_QUORUM, finds nothing.
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
	if cells.IsMarker(rows[0].Value) && (c.m.PlainDeletes || c.m.DeleteBoth) {
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

// Delete deletes a row: a client's row outside of moves, or a copy that a reader deletes. It makes the client's
// mistakes.
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

// Remove removes the rows of a range of keys that a client deletes. It makes the client's mistakes.
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

// purgesAt returns the timestamp at which an entry is deleted: ts, or that of the call with the mistake PurgeByCall.
func (c *clientStore) purgesAt(ctx context.Context, ts store.Timestamp) (store.Timestamp, error) {
	if w := opOf(ctx).write; !c.m.PurgeByCall || w == nil || !w.aged {
		return ts, nil
	}
	return c.world.stamps.Next(ctx, 1)
}

// landLater does a write at some later time, and returns a timeout at once. No client learns the outcome of the write.
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

// redo makes the mistake RedoElsewhere: it does a lost put again after the range has moved to another partition.
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

// ends returns the source and the destination of the move in which a key takes part.
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

// rangeOf returns the range with the key that has the partition id as its partition or as the destination of its move.
// An empty key stands for any range. The result is false if no such range exists.
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

// moverStore is the store of a mover. It makes the mover's mistakes.
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
		if m.m.LoseMarkers && cells.IsMarker(row.Value) {
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

// originals returns the rows without the mark that says that they are copies.
func originals(rows []store.Row) []store.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Value = cells.Original(rows[i].Value)
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
			if cells.IsMarker(row.Value) {
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

// moverMaps is the map client of a mover, from a start of the mover to its death. It makes the mover's mistakes.
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

// mixMerge makes the mistake MixedMerge: it gives the first source of a merge a batch of its own, one phase ahead.
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
