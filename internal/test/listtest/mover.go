package listtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// mover moves ranges as the protocol says, in small steps that a test places
// where it likes. It is the plainest thing that is right; the real one is
// another package's.
type mover struct {
	s     store.Store
	maps  *mapclient.Client
	clock *Clock
	id    store.BucketID
	r     *rand.Rand
	page  int // rows per step of a copy
	// wait waits for the leases of older epochs; mapclient's by default.
	wait func(ctx context.Context) error
	// onDraining is called after the swap to draining, with the moved ranges.
	onDraining func(ctx context.Context, moved []partmap.Range) error
	moves      []*move
	// reached counts the steps by phase, so that a test can see that it tested.
	reached map[string]int
}

// move is one batch with a single move, and where it stands.
type move struct {
	batch  uint64
	ranges []partmap.Range // as they were when the batch began
	todo   []func(ctx context.Context) (again bool, err error)
}

// spans are where the moving ranges are. What stays in between may be part of
// another move meanwhile.
func (x *move) spans() (spans []partmap.Span) {
	for _, rg := range x.ranges {
		if n := len(spans); n > 0 && string(spans[n-1].End) == string(rg.Start) {
			spans[n-1].End = rg.End
		} else {
			spans = append(spans, partmap.Span{Start: rg.Start, End: rg.End})
		}
	}
	return spans
}

func newMover(e *Env, id store.BucketID, r *rand.Rand) *mover {
	m := &mover{s: e.Store, maps: e.Maps, clock: e.Clock, id: id, r: r, page: 10, reached: map[string]int{}}
	m.wait = func(ctx context.Context) error { return e.Maps.Wait(ctx, id) }
	return m
}

// swap applies an edit of the newest root.
func (m *mover) swap(ctx context.Context, f func(e *partmap.Edit) error) (*partmap.Root, error) {
	root, err := m.maps.Load(ctx, m.id)
	if err != nil {
		return nil, err
	}
	e := partmap.NewEdit(root, m.maps.Stamp(), func(id store.NodeID) ([]byte, error) { return m.s.Node(ctx, m.id, id) })
	if err := f(e); err != nil {
		return nil, err
	}
	change, err := e.Change()
	if err != nil {
		return nil, err
	}
	return change.Next, m.maps.Swap(ctx, change)
}

// begin starts a random move; false: there was nothing to move.
func (m *mover) begin(ctx context.Context, cut func() []byte) (bool, error) {
	root, err := m.maps.Load(ctx, m.id)
	if err != nil {
		return false, err
	}
	var ranges []partmap.Range
	for rg, err := range m.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return false, err
		}
		ranges = append(ranges, rg)
	}
	at := m.r.IntN(len(ranges))
	n := 1
	for n < 1+m.r.IntN(3) && at+n < len(ranges) {
		n++
	}
	chosen := ranges[at : at+n]
	for i := range chosen {
		if chosen[i].Phase != partmap.Settled || chosen[i].SweepPending {
			return false, nil
		}
	}
	mv := partmap.Move{Start: chosen[0].Start, End: chosen[n-1].End}
	fresh := func() store.PartitionID { return store.PartitionID(uuid.New()) }
	mv.Parts = []partmap.Part{{Start: mv.Start, To: fresh()}}
	for range m.r.IntN(3) {
		c := cut()
		if string(c) > string(mv.Start) && (len(mv.End) == 0 || string(c) < string(mv.End)) && len(ranges) < 40 {
			mv.Parts = append(mv.Parts, partmap.Part{Start: c, To: fresh()})
		}
	}
	sort.Slice(mv.Parts, func(i, j int) bool { return string(mv.Parts[i].Start) < string(mv.Parts[j].Start) })
	mv.Parts = slices.CompactFunc(mv.Parts, func(a, b partmap.Part) bool { return string(a.Start) == string(b.Start) })
	if n == 1 && len(mv.Parts) > 1 && m.r.IntN(2) == 0 {
		mv.Parts[m.r.IntN(len(mv.Parts))].To = store.PartitionID{} // one part stays
	}
	x := &move{}
	root, err = m.swap(ctx, func(e *partmap.Edit) (err error) { x.batch, err = e.Begin(mv); return err })
	if errors.Is(err, store.InvalidArgument) {
		return false, nil // a partition of it takes part in another move
	}
	if err != nil {
		return false, fmt.Errorf("begin a move: %w", err)
	}
	for rg, err := range m.maps.Ranges(ctx, root, mv.Start) {
		if err != nil {
			return false, err
		}
		if len(mv.End) > 0 && string(rg.Start) >= string(mv.End) {
			break
		}
		if rg.Batch == x.batch && !rg.To.IsZero() {
			x.ranges = append(x.ranges, rg)
		}
	}
	x.todo = m.plan(x)
	m.moves = append(m.moves, x)
	return true, nil
}

// plan is the protocol, as a list of steps.
func (m *mover) plan(x *move) []func(context.Context) (bool, error) {
	once := func(f func(ctx context.Context) error) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { return false, f(ctx) }
	}
	swap := func(ctx context.Context) error {
		_, err := m.swap(ctx, func(e *partmap.Edit) error { return e.Advance(x.batch) })
		return err
	}
	advance := once(swap)
	wait := once(m.wait)
	draining := once(func(ctx context.Context) error {
		if err := swap(ctx); err != nil || m.onDraining == nil {
			return err
		}
		return m.onDraining(ctx, x.ranges)
	})
	steps := []func(context.Context) (bool, error){wait, advance, wait, m.copy(x), advance, wait, m.copy(x), m.rest(),
		draining, wait}
	steps = append(steps,
		once(func(ctx context.Context) error {
			for i := range x.ranges {
				rg := &x.ranges[i]
				if err := m.s.Remove(ctx, m.partition(rg.Partition), store.Bounds{Start: rg.Start, End: rg.End},
					m.clock.Draw()); err != nil {
					return err
				}
			}
			return nil
		}),
		once(func(ctx context.Context) error {
			_, err := m.swap(ctx, func(e *partmap.Edit) error { return e.Settle(x.batch, x.spans()...) })
			return err
		}),
		wait, m.sweep(x),
		once(func(ctx context.Context) error {
			_, err := m.swap(ctx, func(e *partmap.Edit) error { return e.Swept(x.batch) })
			m.moves = slices.DeleteFunc(m.moves, func(o *move) bool { return o == x })
			return err
		}))
	return steps
}

func (m *mover) partition(id store.PartitionID) store.Partition {
	return store.Partition{Bucket: m.id, ID: id}
}

// rest does nothing for some steps, so that there is time for what arrives after
// the comparison.
func (m *mover) rest() func(context.Context) (bool, error) {
	left := m.r.IntN(10)
	return func(context.Context) (bool, error) {
		left--
		return left >= 0, nil
	}
}

// each reads all rows of one side of a move, a page per step, and hands them on.
func (m *mover) each(
	x *move, side func(*partmap.Range) store.PartitionID, f func(ctx context.Context, rg *partmap.Range, rows []store.Row) error,
) func(context.Context) (bool, error) {
	i, after := 0, []byte(nil)
	return func(ctx context.Context) (bool, error) {
		if i == len(x.ranges) {
			return false, nil
		}
		rg := &x.ranges[i]
		b := store.Bounds{Start: rg.Start, End: rg.End}
		if after != nil {
			b.Start, b.StartExclusive = after, true
		}
		page, err := m.s.Slice(ctx, m.partition(side(rg)), b, store.SliceOptions{Limit: m.page, Timestamps: true})
		if err != nil {
			return false, err
		}
		if len(page.Rows) > 0 {
			if err := f(ctx, rg, page.Rows); err != nil {
				return false, err
			}
		}
		if page.More {
			after = append([]byte(nil), page.Rows[len(page.Rows)-1].Key...)
		} else {
			i, after = i+1, nil
		}
		return true, nil
	}
}

// copy writes the rows of the sources to the destinations with their own
// timestamps; a second time, it is the comparison.
func (m *mover) copy(x *move) func(context.Context) (bool, error) {
	return m.each(x, func(rg *partmap.Range) store.PartitionID { return rg.Partition },
		func(ctx context.Context, rg *partmap.Range, rows []store.Row) error {
			for i := range rows {
				rows[i].Value = store.CopiedCell(rows[i].Value)
			}
			return m.s.Put(ctx, m.partition(rg.To), rows...)
		})
}

// sweep deletes the markers of the destinations, each at its own timestamp.
func (m *mover) sweep(x *move) func(context.Context) (bool, error) {
	return m.each(x, func(rg *partmap.Range) store.PartitionID { return rg.To },
		func(ctx context.Context, rg *partmap.Range, rows []store.Row) error {
			for _, row := range rows {
				if store.IsMarker(row.Value) {
					if err := m.s.Delete(ctx, m.partition(rg.To), row.Key, row.Timestamp); err != nil {
						return err
					}
				}
			}
			return nil
		})
}

// step does one step of one move in flight; false: there is none.
func (m *mover) step(ctx context.Context) (bool, error) {
	if len(m.moves) == 0 {
		return false, nil
	}
	x := m.moves[m.r.IntN(len(m.moves))]
	again, err := x.todo[0](ctx)
	if err != nil {
		return false, fmt.Errorf("step of batch %d: %w", x.batch, err)
	}
	if !again {
		x.todo = x.todo[1:]
	}
	root, err := m.maps.Load(ctx, m.id)
	if err != nil {
		return false, err
	}
	phase, sweep := root.BatchOf(x.batch)
	m.reached[fmt.Sprintf("%v, sweep %v", phase, sweep)]++
	return true, nil
}

// finish brings all moves to their end.
func (m *mover) finish(ctx context.Context) error {
	for {
		if more, err := m.step(ctx); err != nil || !more {
			return err
		}
	}
}

// Mover moves ranges of a bucket at random, in small steps, for tests of what is built on
// package listing.
type Mover struct{ m *mover }

// NewMover returns a Mover of a bucket of e.
func NewMover(e *Env, id store.BucketID, r *rand.Rand) *Mover { return &Mover{newMover(e, id, r)} }

// Step does a step of a move in flight, or begins one. cut returns a key to cut at.
func (m *Mover) Step(ctx context.Context, cut func() []byte) error {
	if len(m.m.moves) < 2 && m.m.r.IntN(4) == 0 {
		_, err := m.m.begin(ctx, cut)
		return err
	}
	_, err := m.m.step(ctx)
	return err
}

// Finish brings all moves to their end, and returns how many steps were done by the phase after
// them.
func (m *Mover) Finish(ctx context.Context) (reached map[string]int, err error) {
	return m.m.reached, m.m.finish(ctx)
}
