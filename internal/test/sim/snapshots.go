package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// moments are the moments of the snapshots from which a store is restored. A moment is a number of entries of the
// journal.
type moments struct {
	first, last int // of the rows
	registers   int
	adopt       repair.Adopt // AdoptNone: moves were paused
	// alone is the only data centre that has snapshots, or anywhere if both have.
	alone int
	// healed is true if the data centres are made equal before anything else, as a repair of Cassandra does.
	healed bool

	r  *rand.Rand
	by map[replica]int
}

// replica is a partition in one data centre.
type replica struct {
	p      store.Partition
	centre int
}

func (m *moments) String() string {
	how := []string{"under a pause", "newer rows adopted", "all rows adopted"}[m.adopt]
	of := "both data centres"
	if m.alone != anywhere {
		of = fmt.Sprintf("data centre %d alone", m.alone)
	}
	return fmt.Sprintf("%s, rows of %d to %d, maps of %d, %s, replicas repaired: %v", of, m.first, m.last, m.registers, how,
		m.healed)
}

// of returns the moment of the snapshot of the partition p in a data centre.
func (m *moments) of(p store.Partition, centre int) int {
	at := replica{p, centre}
	if _, known := m.by[at]; !known {
		m.by[at] = []int{m.first, m.first, m.last, m.first + m.r.IntN(m.last-m.first+1)}[m.r.IntN(4)]
	}
	return m.by[at]
}

// draw returns random moments of snapshots, not before begin, as docs/backup.md allows them. The result is nil if no
// allowed moments were found.
func (e *era) draw(r *rand.Rand, begin int) *moments {
	m := &moments{r: r, by: map[replica]int{}, healed: r.IntN(2) == 0, alone: anywhere}
	if r.IntN(4) == 0 {
		m.alone = r.IntN(2)
	}
	end, swaps := e.j.now(), e.j.swaps(e.bucket, begin)
	one := func() int { // often one near a change of the map
		if len(swaps) == 0 || r.IntN(4) == 0 {
			return begin + r.IntN(end-begin+1)
		}
		return min(max(swaps[r.IntN(len(swaps))]+r.IntN(17)-8, begin), end)
	}
	kind := r.IntN(6)
	if e.c.Mistakes.FarSnapshots || e.c.Mistakes.LateMaps {
		kind = 2 // the only one that they concern
	}
	switch kind {
	case 0: // under a pause
		m.first = one()
		if len(e.j.phases(e.bucket, m.first)) > 0 {
			return nil // something moves
		}
		m.registers, m.last = m.first, m.first
		for m.last < end && !slices.Contains(swaps, m.last+1) && r.IntN(60) > 0 {
			m.last++
		}
		return m
	case 1: // all rows are of one moment
		m.first = one()
		m.last, m.registers, m.adopt = m.first, one(), repair.AdoptAll
		if m.registers <= m.first && r.IntN(2) == 0 {
			m.adopt = repair.AdoptNewer
		}
		return m
	}
	m.adopt = repair.AdoptAll
	for range 40 { // within two leases
		m.first = one()
		m.last = min(m.first+r.IntN(150), end)
		switch {
		case e.c.Mistakes.FarSnapshots:
			m.last = m.first + r.IntN(end-m.first+1)
		case !e.together(m.first, m.last):
			continue
		}
		m.registers = []int{m.first, m.last, m.first + r.IntN(m.last-m.first+1), one()}[r.IntN(4)]
		if e.c.Mistakes.LateMaps {
			m.registers = m.last + r.IntN(end-m.last+1)
			return m
		}
		if m.registers <= m.last || e.together(m.first, m.registers) {
			return m
		}
	}
	return nil
}

// together reports whether two moments are less than two leases apart, as far as moves show it. A range that reaches
// the phase draining between the moments must have been copied before the first moment, and only one move may reach
// draining (docs/model/restore.pml).
func (e *era) together(first, last int) bool {
	before := e.j.phases(e.bucket, first)
	copied := !slices.Contains(before, partmap.Marking) && !slices.Contains(before, partmap.Copying) &&
		slices.Contains(before, partmap.Verifying)
	drains := 0
	if slices.Contains(before, partmap.Draining) {
		drains = 1
	}
	for _, at := range e.j.swaps(e.bucket, first) {
		if at <= last && slices.Contains(e.j.phases(e.bucket, at), partmap.Draining) {
			if drains++; !copied {
				return false
			}
		}
	}
	return drains <= 1
}

// proven returns what a store must have after a restore of the snapshots m: the writes that were acknowledged before
// the first snapshot. The store may also have writes that began before the last snapshot. If all rows are of one
// moment, the store must have the rows of that moment, whatever the maps are.
func (e *era) proven(m *moments) *proof {
	h := newProof(e.keys)
	first, last := m.first, m.last
	if first < last {
		first, last = min(first, m.registers), max(last, m.registers)
	}
	for _, w := range e.begun {
		if w.at < last {
			h.begin(w.write)
		}
	}
	for _, w := range e.acked {
		if w.at <= first && (m.alone == anywhere || m.alone == w.centre) {
			_ = h.acknowledge(w.write)
		}
	}
	return h
}

// put restores the snapshots into the empty stage `into`. Rows that only one data centre has in its snapshots must be
// delivered to the other one by a repair.
func (m *moments) put(j *journal, into *stage) error {
	has := map[*written]int{} // a bit for each data centre
	var all []*written
	for i, e := range j.all {
		var err error
		switch {
		case e.w == nil && (i < m.registers || e.node && i < m.last):
			err = e.do(into.mem)
		case e.w != nil && i < m.of(e.w.in, e.centre) && (m.alone == anywhere || m.alone == e.centre):
			if has[e.w] == 0 {
				all = append(all, e.w)
				err = e.w.do(into.mem)
			}
			has[e.w] |= 1 << e.centre
			if err == nil {
				err = e.w.do(into.centres.local[e.centre])
			}
		}
		if err != nil {
			return err
		}
	}
	for _, w := range all {
		if in := has[w]; in < 3 {
			into.centres.lost = append(into.centres.lost, delivery{to: 2 - in, sent: time.Now(), written: w})
		}
	}
	return nil
}

// mended is the restored store, as the repair reads and writes it.
type mended struct {
	*era
	store.Store
	forged map[store.Partition][]store.Row
}

// EachQuorum returns the rows at EACH_QUORUM. It makes the mistakes NearRepair and PurgeForMove.
func (x mended) EachQuorum() store.Rows {
	switch {
	case x.c.Mistakes.NearRepair:
		return x.Store
	case x.c.Mistakes.PurgeForMove:
		return forged{wide{x.Store}, x.forged}
	}
	return wide{x.Store}
}

// Partitions returns up to limit partitions of the store, after the given one.
func (x mended) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	return x.mem.Partitions(ctx, after, limit)
}

// forged has the rows of a store, and a false note wherever a client has removed a range of keys. True notes are left
// by moves.
type forged struct {
	store.Rows
	notes map[store.Partition][]store.Row
}

// forge returns the false notes of the mistake PurgeForMove, by partition.
func (m *moments) forge(j *journal) map[store.Partition][]store.Row {
	notes := map[store.Partition][]store.Row{}
	for i, e := range j.all {
		if e.w == nil || e.w.purges == 0 || i >= m.of(e.w.in, e.centre) {
			continue
		}
		key := e.w.of[0].Start
		if len(key) == 0 {
			key = []byte{0}
		}
		notes[e.w.in] = append(notes[e.w.in], store.Row{
			Key: key, Value: cells.NewNote(store.PartitionID{1}, e.w.of[0].End), Timestamp: e.w.purges,
		})
	}
	return notes
}

func (f forged) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := f.Rows.Slice(ctx, p, b, o)
	for _, n := range f.notes[p] {
		if err == nil && !page.More && store.Within(n.Key, b) {
			page.Rows = append(page.Rows, n)
		}
	}
	slices.SortStableFunc(page.Rows, func(a, b store.Row) int { return bytes.Compare(a.Key, b.Key) })
	return page, err
}

// noteless is a store that drops notes, for the mistake NoNotes.
type noteless struct{ store.Store }

func (x noteless) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return x.Store.Put(ctx, p, slices.DeleteFunc(slices.Clone(rows), func(r store.Row) bool {
		return cells.IsNote(r.Value)
	})...)
}

// mend repairs a restored store before any client uses it, until the repair finds nothing more. adopt says what the
// repair does with rows in partitions that no map names.
func (e *era) mend(adopt repair.Adopt, notes map[store.Partition][]store.Row) error {
	ctx := withActor(context.Background(), &actor{name: "repair", centre: int(e.c.Seed % 2)})
	rows := mended{e, e.centres, notes}
	var left []repair.Finding
	try := func(o repair.Options) error {
		left = nil
		c, err := listing.New(mapclient.With(rows, mapclientOf(e.stage)), listing.Options{Timestamps: &stageStamps{e.stage}})
		if err != nil {
			return err
		}
		o.Sleep = func(context.Context, time.Duration) error { return nil }
		o.StuckAfter = 1000 * time.Hour // moves have stood still since the snapshots, and go on with the servers
		o.Report = func(f repair.Finding) {
			if e.c.Trace != nil {
				e.c.Trace(f.String())
			}
			if f.Open() {
				left = append(left, f)
			}
		}
		_, err = repair.New(rows, c, o).All(ctx)
		return err
	}
	look := func(o repair.Options) error {
		fuse := e.centres.fuse
		err := try(o)
		if fuse > 0 && e.centres.fuse == 0 { // the link was cut meanwhile
			time.Sleep(3 * time.Hour)
			err = try(o)
		}
		return err
	}
	o := repair.Options{Adopt: adopt}
	switch err := look(o); {
	case err != nil:
		return err
	case len(left) > 0 && adopt == repair.AdoptNone:
		for _, f := range left {
			if f.Kind != repair.LeftMarker { // of a delete that came after the sweep
				return fmt.Errorf("moves were paused, but the restored store is not clean: %v", left)
			}
		}
		if err := look(repair.Options{Repair: true}); err != nil {
			return err
		}
	case len(left) > 0: // what a removal hides that no move has left, and what such rows hide
		for _, f := range left {
			switch f.Kind {
			case repair.Orphan, repair.Uncopied, repair.Misplaced, repair.LeftMarker:
				o.Discard = append(o.Discard, f.Partition)
			default:
				return fmt.Errorf("the repair leaves %v", f)
			}
		}
		e.centres.fuse = 0
		x := executor.New(rows, mapclientOf(e.stage), e.bucket, executor.Options{NewID: e.newID})
		if err := x.Run(ctx); err != nil {
			return err
		}
		if err := look(o); err != nil {
			return err
		}
	}
	if err := look(repair.Options{}); err != nil || len(left) > 0 {
		return fmt.Errorf("the repair leaves %v: %w", left, err)
	}
	return nil
}
