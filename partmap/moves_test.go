package partmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// This file tests batches of moves against an oracle that knows keys only: where
// each key lives, where it goes, and which cuts there are.

// begun is what the test remembers of a batch in flight.
type begun struct {
	id    uint64
	moves []Move
	phase Phase
}

// beginSome begins a batch of random moves in runs that are not in flight, and
// returns it; nil if it found none.
func (w *world) beginSome() *begun {
	b := &begun{}
	done := 0
	for range 1 + w.rng.IntN(3) {
		if done == len(w.model) {
			break
		}
		lo, hi := w.between(done, 4)
		done = hi
		if slices.ContainsFunc(w.model[lo:hi], func(e Entry) bool {
			_, _, live := batchOf(w.root, e.Batch)
			return !e.To.IsZero() || live || e.PinUntil > testNow
		}) {
			continue
		}
		m := Move{Start: w.startOf(lo), End: w.startOf(hi)}
		m.Parts = w.someParts(w.model[lo:hi], m)
		if !w.model.allows(lo, hi, m) {
			_, err := w.edit().Begin(m)
			require.Equal(w.t, store.InvalidArgument, store.KindOf(err), "%v", err)
			continue
		}
		b.moves = append(b.moves, m)
	}
	if len(b.moves) == 0 {
		return nil
	}
	e := w.edit()
	id, err := e.Begin(b.moves...)
	require.NoError(w.t, err)
	b.id, b.phase = id, Marking
	for _, m := range b.moves {
		w.model = w.model.begin(m, id)
	}
	w.apply(e)
	return b
}

func batchOf(r *Root, id uint64) (Phase, bool, bool) {
	live := id != 0 && slices.ContainsFunc(r.Batches, func(b Batch) bool { return b.ID == id })
	p, sweep := r.BatchOf(id)
	return p, sweep, live
}

// someParts draws parts that make sense: all to fresh partitions, or, of a single
// range, the first part stays.
func (w *world) someParts(old sorted, m Move) []Part {
	parts := []Part{{Start: m.Start, To: store.PartitionID(id16(w.rng))}}
	for _, k := range keystyle.Some(w.rng, w.style, 5) {
		if string(k) > string(m.Start) && (len(m.End) == 0 || string(k) < string(m.End)) {
			p := Part{Start: k, To: store.PartitionID(id16(w.rng))}
			if w.rng.IntN(2) == 0 {
				p.PinUntil = testNow + 5000
			}
			parts = append(parts, p)
		}
	}
	if len(old) == 1 && len(parts) > 2 && w.rng.IntN(3) == 0 {
		parts[0].To, parts[1].To = store.PartitionID{}, store.PartitionID{}
	} else if len(old) == 1 && len(parts) > 1 && w.rng.IntN(2) == 0 {
		parts[w.rng.IntN(2)*(len(parts)-1)].To = store.PartitionID{}
	}
	return parts
}

// allows is the oracle's: another batch takes nothing from the partitions of the
// run [lo, hi), and once the move is done every partition is in one place.
func (s sorted) allows(lo, hi int, m Move) bool {
	mine := map[store.PartitionID]bool{}
	for _, e := range s[lo:hi] {
		mine[e.Partition] = true
	}
	for _, e := range s {
		if mine[e.Partition] && !e.To.IsZero() {
			return false
		}
	}
	places := map[store.PartitionID]bool{}
	var last store.PartitionID
	for _, e := range s.begin(m, 1) {
		final := e.Partition
		if !e.To.IsZero() {
			final = e.To
		}
		if final != last && places[final] {
			return false
		}
		places[final], last = true, final
	}
	return true
}

// begin is the oracle's: every cut, old or new, begins an entry; it has the home
// of the old range at that key and the destination of the part at that key.
func (s sorted) begin(m Move, batch uint64) sorted {
	in := func(k []byte) bool {
		return string(k) >= string(m.Start) && (len(m.End) == 0 || string(k) < string(m.End))
	}
	var cuts []string
	for _, e := range s {
		if in(e.Start) {
			cuts = append(cuts, string(e.Start))
		}
	}
	for _, p := range m.Parts {
		cuts = append(cuts, string(p.Start))
	}
	slices.Sort(cuts)
	var out sorted
	for _, e := range s {
		if !in(e.Start) {
			out = append(out, e)
		}
	}
	for _, c := range slices.Compact(cuts) {
		e := s.find([]byte(c))
		if string(e.Start) != c {
			e.Start, e.PinUntil = []byte(c), 0
		}
		for _, p := range m.Parts {
			if string(p.Start) <= c && !p.To.IsZero() {
				e.To, e.Batch = p.To, batch
			} else if string(p.Start) <= c {
				e.To, e.Batch = store.PartitionID{}, s.find([]byte(c)).Batch
			}
			if string(p.Start) == c && p.PinUntil != 0 {
				e.PinUntil = p.PinUntil
			}
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return slices.Compare(a.Start, b.Start) })
	return out
}

// settle is the oracle's: homes change, and a cut between two ranges of one batch
// with one home goes.
func (s sorted) settle(batch uint64) (out sorted) {
	for _, e := range s {
		if e.Batch == batch && !e.To.IsZero() {
			e.Partition, e.To, e.Created = e.To, store.PartitionID{}, testNow
			if n := len(out); n > 0 && out[n-1].Partition == e.Partition {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

// TestBatchesAgainstOracle: random splits, merges and whole moves, several
// batches in flight, each in its phase; after each change the map is the
// oracle's, pins and all, and valid.
func TestBatchesAgainstOracle(t *testing.T) {
	rng := seed.New(t)
	for range 15 {
		w := newWorld(t, rng, []int{3, 40, 200}[rng.IntN(3)])
		var flight []*begun
		for range 60 {
			if len(flight) < 4 && rng.IntN(3) == 0 {
				if b := w.beginSome(); b != nil {
					flight = append(flight, b)
				}
				continue
			}
			if len(flight) == 0 {
				continue
			}
			i := rng.IntN(len(flight))
			b := flight[i]
			e := w.edit()
			switch b.phase {
			case Draining:
				var spans []store.Bounds
				for _, m := range b.moves {
					spans = append(spans, store.Bounds{Start: m.Start, End: m.End})
				}
				require.NoError(t, e.Settle(b.id, spans...))
				w.model = w.model.settle(b.id)
				b.phase = Settled
			case Settled:
				require.NoError(t, e.Swept(b.id))
				flight = slices.Delete(flight, i, i+1)
			default:
				require.NoError(t, e.Advance(b.id))
				b.phase++
			}
			w.apply(e)
			p, sweep, live := batchOf(w.root, b.id)
			require.Equal(t, b.phase, p)
			require.Equal(t, b.phase == Settled && live, sweep)
			for _, r := range w.blobs.ranges(t, w.root) {
				p, sweep := w.root.BatchOf(r.Batch)
				require.Equal(t, p, r.Phase)
				require.Equal(t, sweep, r.SweepPending)
			}
		}
	}
}

// fixed is a small map with cuts c1 to c9 on partitions p0 to p9.
func fixed(t *testing.T, rng *rand.Rand) (blobs, *Root) {
	entries := []Entry{{Partition: store.PartitionID{100}}}
	for i := byte(1); i < 10; i++ {
		entries = append(entries, Entry{
			Start: fmt.Appendf(nil, "c%d", i), Partition: store.PartitionID{100 + i}, Created: 5,
		})
	}
	entries[5].PinUntil = testNow + 1
	b := blobs{}
	c, err := New(testBucket, 0, entries, stampOf(rng))
	require.NoError(t, err)
	return b, b.apply(t, c)
}

// TestSplitAndMergeInWords: the two commonest batches, spelled out.
func TestSplitAndMergeInWords(t *testing.T) {
	rng := seed.New(t)
	b, root := fixed(t, rng)
	step := func(do func(e *edit) error) {
		t.Helper()
		e := newEdit(root, stampOf(rng), b.read)
		require.NoError(t, do(e))
		c, err := e.Change()
		require.NoError(t, err)
		root = b.apply(t, c)
		require.Empty(t, Validate(root, b.read))
	}
	split := Move{
		Start: []byte("c1"), End: []byte("c2"),
		Parts: []Part{{Start: []byte("c1")}, {Start: []byte("c15"), To: store.PartitionID{1}}},
	}
	merge := Move{Start: []byte("c2"), End: []byte("c4"), Parts: []Part{{Start: []byte("c2"), To: store.PartitionID{2}}}}
	step(func(e *edit) error {
		id, err := e.Begin(split, merge)
		require.Equal(t, uint64(2), id)
		return err
	})
	require.Equal(t, []Batch{{ID: 2, Phase: Marking, Ranges: 3}}, root.Batches)
	require.Equal(t, uint64(11), root.Ranges)
	for range 3 {
		step(func(e *edit) error { return e.Advance(2) })
	}
	r := root.rangeOf(root.Entries[2], root.Entries[3].Start)
	require.Equal(t, Draining, r.Phase)
	require.Equal(t, store.PartitionID{1}, r.WriteTo())
	step(func(e *edit) error {
		return e.Settle(2, store.Bounds{Start: []byte("c1"), End: []byte("c2")}, store.Bounds{Start: []byte("c2"), End: []byte("c4")})
	})
	require.Equal(t, []Batch{{ID: 2, Phase: Settled, Ranges: 2}}, root.Batches)
	require.Equal(t, uint64(10), root.Ranges)
	homes := func() (out []string) {
		for _, e := range root.Entries[1:5] {
			out = append(out, fmt.Sprintf("%s on %d, %v", e.Start, e.Partition[0], root.rangeOf(e, nil).SweepPending))
		}
		return out
	}
	require.Equal(t, []string{"c1 on 101, false", "c15 on 1, true", "c2 on 2, true", "c4 on 104, false"}, homes())
	step(func(e *edit) error { return e.Swept(2) })
	require.Empty(t, root.Batches)
	require.Equal(t, []string{"c1 on 101, false", "c15 on 1, false", "c2 on 2, false", "c4 on 104, false"}, homes())
}

// TestBadBatchesAreRefused: what would break an invariant never becomes a map.
func TestBadBatchesAreRefused(t *testing.T) {
	rng := seed.New(t)
	b, root := fixed(t, rng)
	fresh := func() store.PartitionID { return store.PartitionID(id16(rng)) }
	c := func(i int) []byte { return fmt.Appendf(nil, "c%d", i) }
	whole := func(from, to int) Move {
		return Move{Start: c(from), End: c(to), Parts: []Part{{Start: c(from), To: fresh()}}}
	}
	step := func(do func(e *edit) error) {
		t.Helper()
		e := newEdit(root, stampOf(rng), b.read)
		require.NoError(t, do(e))
		change, err := e.Change()
		require.NoError(t, err)
		root = b.apply(t, change)
	}
	refused := func(why string, do func(e *edit) error) {
		t.Helper()
		e := newEdit(root, stampOf(rng), b.read)
		err := do(e)
		require.Equal(t, store.InvalidArgument, store.KindOf(err), "%s: %v", why, err)
		require.ErrorContains(t, err, why)
		_, err = e.Change()
		require.Error(t, err)
	}
	begin := func(moves ...Move) func(e *edit) error {
		return func(e *edit) error { _, err := e.Begin(moves...); return err }
	}
	refused("without a move", begin())
	refused("without a move", begin(Move{Start: c(1), End: c(2), Parts: []Part{{Start: c(1)}}}))
	refused("is no cut", begin(Move{Start: []byte("c11"), End: c(2), Parts: []Part{{Start: []byte("c11"), To: fresh()}}}))
	refused(
		"is not fresh", begin(Move{Start: c(1), End: c(3), Parts: []Part{{Start: c(1), To: root.Entries[2].Partition}}}),
	)
	same := whole(3, 4)
	same2 := whole(6, 7)
	same2.Parts[0].To = same.Parts[0].To
	refused("is not fresh", begin(same, same2))
	refused(
		"in two places",
		begin(
			Move{
				Start: c(1), End: c(2), Parts: []Part{{Start: c(1)}, {Start: []byte("c13"), To: fresh()}, {Start: []byte("c16")}},
			},
		),
	)
	refused("pinned", begin(whole(4, 6)))
	refused("no batch", func(e *edit) error {
		batch, err := e.Begin(whole(1, 2))
		require.NoError(t, err)
		return e.Advance(batch)
	})
	refused("one batch at most", func(e *edit) error {
		_, err := e.Begin(whole(1, 2))
		require.NoError(t, err)
		_, err = e.Begin(whole(3, 4))
		return err
	})

	step(begin(whole(1, 3)))
	refused("moves already", begin(whole(2, 4)))
	refused("only a draining one settles", func(e *edit) error { return e.Settle(2, store.Bounds{Start: c(1), End: c(3)}) })
	refused("is not settled yet", func(e *edit) error { return e.Swept(2) })
	refused("no batch 7", func(e *edit) error { return e.Advance(7) })
	refused("already", func(e *edit) error { return e.Advance(2, 2) })
	for range 3 {
		step(func(e *edit) error { return e.Advance(2) })
	}
	refused("can't advance", func(e *edit) error { return e.Advance(2) })
	refused("has 2 ranges, but 1", func(e *edit) error { return e.Settle(2, store.Bounds{Start: c(1), End: c(2)}) })
	step(func(e *edit) error { return e.Settle(2, store.Bounds{Start: c(1), End: c(3)}) })
	refused("not swept yet", begin(whole(1, 3)))
	refused("not swept yet", begin(whole(1, 4)))
	refused("no batch", func(e *edit) error { return e.Swept(2, 2) })
	step(func(e *edit) error { return e.Swept(2) })
	step(begin(whole(1, 3)))

	state := func(to State) {
		change := Again(root, stampOf(rng))
		change.Next.State = to
		root = b.apply(t, change)
	}
	state(Closing)
	refused("is closing", begin(whole(6, 7)))
	state(Deleted)
	refused("is deleted", func(e *edit) error { return e.replace(replacement{}) })
}

// TestPinsEnd: from the second of their end on they hold nothing.
func TestPinsEnd(t *testing.T) {
	for late, joins := range map[time.Duration]bool{0: false, time.Second: true} {
		rng := seed.New(t)
		b, root := fixed(t, rng)
		s := stampOf(rng)
		s.Now = s.Now.Add(late)
		_, err := newEdit(root, s, b.read).Begin(Move{
			Start: []byte("c4"), End: []byte("c6"), Parts: []Part{{Start: []byte("c4"), To: store.PartitionID{1}}},
		})
		require.Equal(t, joins, err == nil, "%v", err)
	}
}

// TestSettlingLeavesOtherBatches: those that lie within its spans move on.
func TestSettlingLeavesOtherBatches(t *testing.T) {
	rng := seed.New(t)
	b, root := fixed(t, rng)
	step := func(do func(e *edit) error) {
		t.Helper()
		e := newEdit(root, stampOf(rng), b.read)
		require.NoError(t, do(e))
		change, err := e.Change()
		require.NoError(t, err)
		root = b.apply(t, change)
	}
	for i, c := range []string{"c1", "c3"} {
		step(func(e *edit) error {
			_, err := e.Begin(Move{
				Start: []byte(c), End: []byte{'c', c[1] + 1}, Parts: []Part{{Start: []byte(c), To: store.PartitionID{byte(1 + i)}}},
			})
			return err
		})
	}
	for range 3 {
		step(func(e *edit) error { return e.Advance(2) })
	}
	step(func(e *edit) error { return e.Settle(2, store.Bounds{}) })
	require.Equal(t, []Batch{{ID: 2, Phase: Settled, Ranges: 1}, {ID: 3, Phase: Marking, Ranges: 1}}, root.Batches)
	require.Equal(t, store.PartitionID{1}, root.Entries[1].Partition)
	require.Equal(t, store.PartitionID{103}, root.Entries[3].Partition)
	require.Equal(t, store.PartitionID{2}, root.Entries[3].To)
	require.Empty(t, Validate(root, b.read))
}

// TestNeighboursInThePartition: they count on both sides of a move, also where its end is one byte.
func TestNeighboursInThePartition(t *testing.T) {
	p := store.PartitionID{7}
	root := &Root{
		Bucket: testBucket, Epoch: 1, State: Open, Ranges: 3,
		Entries: []Entry{{Partition: store.PartitionID{6}}, {Start: []byte("a"), Partition: p}, {Start: []byte("b"), Partition: p}},
	}
	_, err := newEdit(root, counting(), nil).Begin(Move{
		Start: []byte("a"), End: []byte("b"),
		Parts: []Part{{Start: []byte("a")}, {Start: []byte("a5"), To: store.PartitionID{1}}},
	})
	require.ErrorContains(t, err, "would be in two places")
	_, err = newEdit(root, counting(), nil).Begin(Move{
		Start: []byte("b"), Parts: []Part{{Start: []byte("b"), To: store.PartitionID{1}}, {Start: []byte("b5")}},
	})
	require.ErrorContains(t, err, "would be in two places")
}

// TestBatchesAreBounded: a root takes so many batches and no more.
func TestBatchesAreBounded(t *testing.T) {
	rng := seed.New(t)
	var cuts [][]byte
	for i := range mapcodec.MaxBatches + 1 {
		cuts = append(cuts, fmt.Appendf(nil, "c%03d", i))
	}
	b := blobs{}
	change, err := New(testBucket, 0, someEntries(rng, cuts), stampOf(rng))
	require.NoError(t, err)
	root := b.apply(t, change)
	for i := range mapcodec.MaxBatches {
		e := newEdit(root, stampOf(rng), b.read)
		_, err := e.Begin(
			Move{Start: cuts[i], End: cuts[i+1], Parts: []Part{{Start: cuts[i], To: store.PartitionID(id16(rng))}}},
		)
		require.NoError(t, err)
		change, err := e.Change()
		require.NoError(t, err)
		root = b.apply(t, change)
	}
	require.Empty(t, Validate(root, b.read))
	e := newEdit(root, stampOf(rng), b.read)
	_, err = e.Begin(
		Move{Start: cuts[mapcodec.MaxBatches], Parts: []Part{{Start: cuts[mapcodec.MaxBatches], To: store.PartitionID(id16(rng))}}},
	)
	require.ErrorContains(t, err, "wait until one ends")
}
