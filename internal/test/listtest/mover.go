package listtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// mover moves ranges as the move protocol demands, in small steps that a test places where it likes. It is the simplest
// correct mover. The real one is package executor.
type mover struct {
	s     store.Store
	maps  *mapclient.Client
	clock *Clock
	id    store.BucketID
	r     *rand.Rand
	page  int // rows per step of a copy
	// wait waits for the leases of older epochs of the map to end. The default is the wait of package mapclient.
	wait func(ctx context.Context) error
	// onDraining, if not nil, is called after the map has gone to the phase draining, with the moved ranges.
	onDraining func(ctx context.Context, moved []partmap.Range) error
	moves      []*move
	// reached counts the steps by phase, so that a test can check that it has met all phases.
	reached map[string]int
}

// move is one move of ranges, in a batch of its own, with the steps that are left to do.
type move struct {
	batch  uint64
	ranges []partmap.Range // as they were when the batch began
	todo   []func(ctx context.Context) (again bool, err error)
}

// spans returns the intervals of keys of the moving ranges. Ranges between the intervals may take part in another move
// meanwhile.
func (x *move) spans() (spans []store.Bounds) {
	for _, rg := range x.ranges {
		if n := len(spans); n > 0 && string(spans[n-1].End) == string(rg.Start) {
			spans[n-1].End = rg.End
		} else {
			spans = append(spans, store.Bounds{Start: rg.Start, End: rg.End})
		}
	}
	return spans
}

func newMover(e *Env, id store.BucketID, r *rand.Rand) *mover {
	m := &mover{s: e.Store, maps: e.Maps, clock: e.Clock, id: id, r: r, page: 10, reached: map[string]int{}}
	m.wait = func(ctx context.Context) error { return e.Maps.Wait(ctx, id) }
	return m
}

// swap changes the newest root of the map by the function f, and returns the new root.
func (m *mover) swap(ctx context.Context, f func(e partmap.Edit) error) (*partmap.Root, error) {
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

// begin starts a move of random ranges, which are cut at keys that the function cut returns. The result is false if the
// chosen ranges cannot move.
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
	root, err = m.swap(ctx, func(e partmap.Edit) (err error) { x.batch, err = e.Begin(mv); return err })
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

// plan returns the steps of the move x, in the order of the move protocol.
func (m *mover) plan(x *move) []func(context.Context) (bool, error) {
	once := func(f func(ctx context.Context) error) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { return false, f(ctx) }
	}
	swap := func(ctx context.Context) error {
		_, err := m.swap(ctx, func(e partmap.Edit) error { return e.Advance(x.batch) })
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
			_, err := m.swap(ctx, func(e partmap.Edit) error { return e.Settle(x.batch, x.spans()...) })
			return err
		}),
		wait, m.sweep(x),
		once(func(ctx context.Context) error {
			_, err := m.swap(ctx, func(e partmap.Edit) error { return e.Swept(x.batch) })
			m.moves = slices.DeleteFunc(m.moves, func(o *move) bool { return o == x })
			return err
		}))
	return steps
}

func (m *mover) partition(id store.PartitionID) store.Partition {
	return store.Partition{Bucket: m.id, ID: id}
}

// rest returns a step that does nothing for a random number of times, so that writes can arrive after the comparison.
func (m *mover) rest() func(context.Context) (bool, error) {
	left := m.r.IntN(10)
	return func(context.Context) (bool, error) {
		left--
		return left >= 0, nil
	}
}

// each returns a step that reads all rows of one side of the move x, one page each time, and passes the rows to f. The
// function side returns the partition of a range to read.
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

// copy returns a step that writes the rows of the sources to the destinations, with their own timestamps. The second
// time, the step is the comparison.
func (m *mover) copy(x *move) func(context.Context) (bool, error) {
	return m.each(x, func(rg *partmap.Range) store.PartitionID { return rg.Partition },
		func(ctx context.Context, rg *partmap.Range, rows []store.Row) error {
			for i := range rows {
				rows[i].Value = cells.Copied(rows[i].Value)
			}
			return m.s.Put(ctx, m.partition(rg.To), rows...)
		})
}

// sweep returns a step that deletes the markers of deletes in the destinations, each at its own timestamp.
func (m *mover) sweep(x *move) func(context.Context) (bool, error) {
	return m.each(x, func(rg *partmap.Range) store.PartitionID { return rg.To },
		func(ctx context.Context, rg *partmap.Range, rows []store.Row) error {
			for _, row := range rows {
				if cells.IsMarker(row.Value) {
					if err := m.s.Delete(ctx, m.partition(rg.To), row.Key, row.Timestamp); err != nil {
						return err
					}
				}
			}
			return nil
		})
}

// step does one step of a random move in flight. The result is false if no move is in flight.
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

// finish does all remaining steps of all moves.
func (m *mover) finish(ctx context.Context) error {
	for {
		if more, err := m.step(ctx); err != nil || !more {
			return err
		}
	}
}

// Mover moves random ranges of a bucket in small steps, for tests of code that uses package listing.
type Mover struct{ m *mover }

// NewMover returns a Mover for the bucket id in the store of e.
func NewMover(e *Env, id store.BucketID, r *rand.Rand) *Mover { return &Mover{newMover(e, id, r)} }

// Step does a step of a move in flight, or begins a move. The function cut returns a key at which to cut ranges.
func (m *Mover) Step(ctx context.Context, cut func() []byte) error {
	if len(m.m.moves) < 2 && m.m.r.IntN(4) == 0 {
		_, err := m.m.begin(ctx, cut)
		return err
	}
	_, err := m.m.step(ctx)
	return err
}

// Finish does all remaining steps of all moves. reached is the number of steps that were done, by the phase after the
// step.
func (m *Mover) Finish(ctx context.Context) (reached map[string]int, err error) {
	return m.m.reached, m.m.finish(ctx)
}
