package move_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// failingMap is a map of which one read fails, counted from 0: a range of an iteration,
// or a range before a cut.
type failingMap struct {
	theMap
	reads, fails int
}

var errAway = store.Errorf(store.Timeout, "the store is away")

func (m *failingMap) next() error {
	m.reads++
	if m.reads > m.fails {
		return errAway
	}
	return nil
}

func (m *failingMap) each(ranges iter.Seq2[partmap.Range, error]) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		for rg, err := range ranges {
			if failed := m.next(); failed != nil {
				yield(partmap.Range{}, failed)
				return
			}
			if !yield(rg, err) {
				return
			}
		}
	}
}

func (m *failingMap) Ranges(c context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return m.each(m.theMap.Ranges(c, r, from))
}

func (m *failingMap) RangesSince(c context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error] {
	return m.each(m.theMap.RangesSince(c, r, epoch))
}

func (m *failingMap) RangeBefore(c context.Context, r *partmap.Root, cut []byte) (partmap.Range, bool, error) {
	if err := m.next(); err != nil {
		return partmap.Range{}, false, err
	}
	return m.theMap.RangeBefore(c, r, cut)
}

// begin lets somebody else begin moves, and leaves them in their first phase.
func (w *world) begin(goals ...move.Goal) {
	w.t.Helper()
	s := &move.Seen{}
	w.look(s, goals)
	s.Waited(w.root.Epoch)
	for _, e := range w.next(s, goals) {
		if e, ok := e.(move.Swap); ok {
			require.Len(w.t, e.Begin, len(goals))
			e.Advance, e.Settle, e.Swept = nil, nil, nil // others go no further
			require.NoError(w.t, w.swap(e))
			return
		}
	}
	w.t.Fatal("nothing begins")
}

// advance takes the batch all the way to a phase.
func (w *world) advance(batch uint64, to partmap.Phase) {
	w.t.Helper()
	for {
		p, _ := w.root.BatchOf(batch)
		if p == to {
			return
		}
		e := move.Swap{Epoch: w.root.Epoch + 1, Advance: []move.Step{{Batch: batch, To: p + 1}}}
		if p == partmap.Draining {
			e.Advance = nil
			var spans []store.Bounds
			for rg, err := range partmap.Ranges(w.root, w.read, nil, nil) {
				require.NoError(w.t, err)
				if rg.Batch == batch {
					spans = append(spans, store.Bounds{Start: rg.Start, End: rg.End})
				}
			}
			e.Settle = []move.Settlement{{Batch: batch, Spans: joined(spans)}}
		}
		require.NoError(w.t, w.swap(e))
	}
}

func joined(spans []store.Bounds) (out []store.Bounds) {
	for _, s := range spans {
		if n := len(out); n > 0 && string(out[n-1].End) == string(s.Start) {
			out[n-1].End = s.End
		} else {
			out = append(out, s)
		}
	}
	return out
}

// A read that fails leaves no view behind, whichever it is: nobody moves by half a map.
func TestEachReadOfTheMapMayFail(t *testing.T) {
	w := newWorld(t, "c", "f", "i", "l", "o", "r", "u", "x")
	w.finish([]move.Goal{move.Split(b("l"), b("o"), 0, b("m"))})
	w.begin(move.Split(b("c"), b("f"), 1, b("d"))) // of which [c, d) leaves, [d, f) stays in the partition
	goals := []move.Goal{move.Merge(b("r"), nil), move.Split(b("d"), b("f"), 0, b("e"))}
	known := func() *move.Seen {
		s := &move.Seen{}
		s.Began(w.root.Batches[0].ID, []store.Bounds{{Start: b("c"), End: b("f")}})
		return s
	}
	wrong := func() *move.Seen {
		s := &move.Seen{}
		s.Began(w.root.Batches[0].ID, []store.Bounds{{End: b("c")}}) // where nothing is of interest
		return s
	}
	for name, seen := range map[string]func() *move.Seen{"nothing known": func() *move.Seen { return &move.Seen{} },
		"all known": known, "known wrongly": wrong} {
		whole := &failingMap{theMap: theMap{w: w}, fails: math.MaxInt}
		v, err := move.Look(w.t.Context(), w.root, whole, seen(), goals)
		require.NoError(t, err)
		require.Equal(t, w.look(seen(), goals), v, name)
		require.Greater(t, whole.reads, 5, name)
		for fails := range whole.reads {
			m := &failingMap{theMap: theMap{w: w}, fails: fails}
			v, err := move.Look(w.t.Context(), w.root, m, seen(), goals)
			require.ErrorIs(t, err, errAway, "%s, read %d of %d", name, fails, whole.reads)
			require.Nil(t, v, "%s, read %d of %d", name, fails, whole.reads)
			require.Equal(t, fails+1, m.reads, "%s: it reads on", name)
		}
	}
}

// inWords is a move: each part, and where it goes.
func inWords(m partmap.Move) string {
	var parts []string
	for _, p := range m.Parts {
		s := fmt.Sprintf("%s stays", p.Start)
		if !p.To.IsZero() {
			s = fmt.Sprintf("%s goes", p.Start)
		}
		if p.PinUntil != 0 {
			s += fmt.Sprintf(" pinned %d", p.PinUntil)
		}
		parts = append(parts, s)
	}
	return fmt.Sprintf("[%s, %s): %s", m.Start, m.End, strings.Join(parts, ", "))
}

// What goals need of a map with the cuts c, f, i, l, n, p and s, of which f is pinned for
// an hour and l until now, [i, l) moves, and the sweep of [l, n) is pending.
func TestVerdicts(t *testing.T) {
	pinned := func(g move.Goal, until int64) move.Goal { g.PinUntil = until; return g }
	build := func() *world {
		w := newWorld(t, "c", "i")
		w.finish([]move.Goal{
			pinned(move.Split(b("c"), b("i"), 0, b("f")), w.now.Unix()+3600),
			pinned(move.Split(b("i"), nil, 0, b("l")), w.now.Unix()),
		})
		w.finish([]move.Goal{move.Split(b("l"), nil, 1, b("n"))})
		w.begin(move.Split(b("n"), nil, 0, b("p"), b("s")))
		w.advance(w.root.Batches[0].ID, partmap.Settled)
		require.NoError(t, w.swap(move.Swap{Swept: []uint64{w.root.Batches[0].ID}}))
		rg := partmap.Range{Entry: w.root.Entries[4], End: b("n")}
		w.begin(move.Refresh(&rg))
		w.advance(w.root.Batches[0].ID, partmap.Settled)
		rg = partmap.Range{Entry: w.root.Entries[3], End: b("l")}
		w.begin(move.Refresh(&rg))
		return w
	}
	w := build()
	require.Equal(t, []string{`"" settled sweep false`, `"c" settled sweep false`, `"f" settled sweep false`,
		`"i" marking sweep false`,
		`"l" settled sweep true`, `"n" settled sweep false`, `"p" settled sweep false`, `"s" settled sweep false`}, w.layout())
	home := w.root.Entries[2].Partition
	const met, ready, blocked, impossible = move.Met, move.Ready, move.Blocked, move.Impossible
	for name, c := range map[string]struct {
		goal move.Goal
		want move.Verdict
		text string
	}{
		"a split": {move.Split(nil, b("c"), 0, b("a"), b("b")), ready,
			"[, c):  stays, a goes, b goes"},
		"a split, the last stays": {move.Split(nil, b("c"), 1, b("a")), ready, "[, c):  goes, a stays"},
		"a split, none stays":     {move.Split(nil, b("c"), -1, b("a")), ready, "[, c):  goes, a goes"},
		"a split with a pin": {pinned(move.Split(nil, b("c"), 0, b("a")), 77), ready,
			"[, c):  stays, a goes pinned 77"},
		"a split that is met": {move.Split(b("c"), b("i"), 0, b("f")), met, ""},
		"a split that is met by half": {move.Split(b("c"), b("i"), 0, b("d"), b("f")), ready,
			"[c, i): c goes, d goes, f stays"},
		"a cut at the start": {move.Split(b("c"), b("f"), 0, b("c")), impossible,
			`cut 0, "c", is not above the one before it and below the end "f"`},
		"a cut at the end": {move.Split(b("c"), b("f"), 0, b("f")), impossible, `cut 0, "f", is not above`},
		"a cut twice": {move.Split(b("c"), b("f"), 0, b("d"), b("d")), impossible,
			`cut 1, "d", is not above`},
		"cuts that descend": {move.Split(b("c"), b("f"), 0, b("e"), b("d")), impossible,
			`cut 1, "d", is not above`},
		"an empty cut": {move.Split(nil, nil, 0, []byte{}), impossible, `cut 0, "", is not above`},
		"a start that is no cut": {move.Merge(b("b"), b("f")), impossible,
			`["b", "f") does not begin and end at cuts of bucket`},
		"an end that is no cut": {move.Merge(b("c"), b("g")), impossible,
			`["c", "g") does not begin and end at cuts of bucket`},
		"a merge": {move.Merge(nil, b("f")), ready, "[, f):  goes"},
		"no cuts": {move.Goal{End: b("f")}, ready, "[, f):  goes"},
		"a merge across a pin": {move.Merge(b("c"), b("i")), impossible,
			`the cut "f" is pinned until 1970-01-12T14:46:40Z: nothing joins across it`},
		"from a pin on": {move.Split(b("f"), b("i"), 0, b("g")), ready, "[f, i): f stays, g goes"},
		"a pin that stays": {move.Goal{End: b("i"), Cuts: [][]byte{b("f")}, Stay: -1}, ready,
			"[, i):  goes, f stays"},
		"a merge that is met":        {move.Merge(nil, b("c")), met, ""},
		"a range that moves":         {move.Merge(b("i"), b("l")), blocked, ""},
		"beside one that moves":      {move.Merge(b("f"), b("l")), blocked, ""},
		"one that is not swept":      {move.Split(b("l"), b("n"), 0, b("m")), blocked, ""},
		"a merge with one not swept": {move.Merge(b("l"), b("p")), blocked, ""},
		"beside one not swept":       {move.Split(b("n"), b("p"), 0, b("o")), ready, "[n, p): n stays, o goes"},
		"a refresh": {move.Goal{Start: b("f"), End: b("i"), Stay: -1, Leave: home}, ready,
			"[f, i): f goes"},
		"a refresh that is met": {move.Goal{Start: b("f"), End: b("i"), Stay: -1, Leave: store.PartitionID{9}},
			met, ""},
		"a refresh that also cuts": {move.Goal{Start: b("f"), End: b("i"), Stay: 0, Cuts: [][]byte{b("g")},
			Leave: home}, ready, "[f, i): f goes, g goes"},
		"keeping one of two": {move.Goal{End: b("f"), Cuts: [][]byte{b("b")}, Stay: -1, Keep: []int{0}},
			ready, "[, f):  stays, b goes"},
		"keeping the last of two": {move.Goal{End: b("f"), Cuts: [][]byte{b("d")}, Stay: -1, Keep: []int{1}},
			ready, "[, f):  goes, d stays"},
		"keeping what fits nowhere": {move.Goal{End: b("f"), Cuts: [][]byte{b("b")}, Stay: -1, Keep: []int{1}},
			ready, "[, f):  goes, b goes"},
		"keeping as much as there is": {move.Goal{End: b("f"), Cuts: [][]byte{b("a"), b("c")}, Stay: -1,
			Keep: []int{2}}, ready, "[, f):  goes, a goes, c stays"},
		"keeping at the end": {move.Goal{Start: b("p"), Cuts: [][]byte{b("t")}, Stay: -1, Keep: []int{1}},
			ready, "[p, ): p goes, t stays"},
		"keeping all of the end": {move.Goal{Start: b("p"), Cuts: [][]byte{b("r")}, Stay: -1, Keep: []int{1}},
			ready, "[p, ): p goes, r goes"},
		"the last range": {move.Split(b("s"), nil, 0, b("t")), ready, "[s, ): s stays, t goes"},
		"more ranges than parts": {move.Goal{End: b("f"), Cuts: [][]byte{b("c"), b("d")}, Stay: -1}, ready,
			"[, f):  stays, c goes, d goes"},
	} {
		v := w.look(&move.Seen{}, []move.Goal{c.goal})
		verdict, move, err := c.goal.Judge(v, w.now, func() store.PartitionID { return w.id() })
		require.Equal(t, c.want, verdict, "%s: %v", name, err)
		switch verdict {
		case impossible:
			require.ErrorIs(t, err, store.InvalidArgument, name)
			require.ErrorContains(t, err, c.text, name)
		case ready:
			require.NoError(t, err, name)
			require.Equal(t, c.text, inWords(move), name)
			edit := partmap.NewEdit(w.root, w.stamp(), w.read)
			_, err := edit.Begin(move)
			require.NoError(t, err, name)
		default:
			require.NoError(t, err, name)
			require.Empty(t, move.Parts, name)
		}
	}
	// The pin of l ends now: a second earlier it holds.
	g := move.Merge(b("i"), b("n"))
	w = newWorld(t, "i")
	w.finish([]move.Goal{pinned(move.Split(b("i"), nil, 0, b("l"), b("n")), w.now.Unix())})
	for ago, want := range map[time.Duration]move.Verdict{0: ready, time.Second: impossible} {
		verdict, _, _ := g.Judge(w.look(&move.Seen{}, []move.Goal{g}), w.now.Add(-ago),
			func() store.PartitionID { return w.id() })
		require.Equal(t, want, verdict, ago)
	}
}

// Of two ranges that share a partition, none may stay where the other leaves.
func TestSharedPartitionsLeaveTogether(t *testing.T) {
	w := newWorld(t)
	edit := partmap.NewEdit(w.root, w.stamp(), w.read)
	shared := store.PartitionID{77}
	require.NoError(t, edit.Replace(nil, nil, []partmap.Entry{{Partition: store.PartitionID{76}},
		{Start: b("c"), Partition: shared}, {Start: b("f"), Partition: shared}, {Start: b("i"),
			Partition: store.PartitionID{78}}}))
	c, err := edit.Change()
	require.NoError(t, err)
	w.take(c)
	for name, g := range map[string]move.Goal{
		"as it is": {Cuts: [][]byte{b("c"), b("f"), b("g"), b("i")}, Stay: -1},
		"kept":     {Cuts: [][]byte{b("c"), b("f"), b("g"), b("i")}, Stay: -1, Keep: []int{0, 1, 4}},
	} {
		_, move, err := g.Judge(w.look(&move.Seen{}, []move.Goal{g}), w.now, func() store.PartitionID { return w.id() })
		require.NoError(t, err)
		require.Equal(t, "[, ):  stays, c goes, f goes, g goes, i stays", inWords(move), name)
	}
	// One of them moves: the other one waits for it.
	g := move.Split(b("f"), b("i"), 0, b("g"))
	w.begin(g)
	left := move.Split(b("c"), b("f"), 0, b("d"))
	verdict, _, err := left.Judge(w.look(&move.Seen{}, []move.Goal{left}), w.now, nil)
	require.NoError(t, err)
	require.Equal(t, move.Blocked, verdict)
	// Not where only its sweep is pending.
	w.advance(w.root.Batches[0].ID, partmap.Settled)
	verdict, _, err = left.Judge(w.look(&move.Seen{}, []move.Goal{left}), w.now,
		func() store.PartitionID { return w.id() })
	require.NoError(t, err)
	require.Equal(t, move.Ready, verdict)
	// What leaves a partition that has more than what leaves is removed by ranges.
	require.Contains(t, w.layout(), `"g" settled sweep true`)
}

// How much begins at once.
func TestBeginsWithinLimits(t *testing.T) {
	split := func(at string) move.Goal { return move.Split(b(at), b(at+"z"), 0, b(at+"m")) }
	cuts := []string{"a", "az", "b", "bz", "c", "cz"}
	abc := []move.Goal{split("a"), split("b"), split("c")}
	for name, c := range map[string]struct {
		goals []move.Goal
		in    move.Input
		want  string
	}{
		"all": {abc, move.Input{}, "swap: begin 3 moves"},
		"a merge and a split": {[]move.Goal{split("a"), move.Merge(b("b"), nil)}, move.Input{},
			"swap: begin 2 moves"},
		"the same twice": {[]move.Goal{split("a"), split("a"), split("c")}, move.Input{},
			"swap: begin 2 moves"},
		"what is met takes nothing": {[]move.Goal{move.Merge(b("a"), b("az")), split("b")}, move.Input{},
			"swap: begin 1 moves"},
		"impossible ones take nothing": {[]move.Goal{move.Merge(b("aa"), b("az")), split("b")}, move.Input{},
			"swap: begin 1 moves"},
		"held": {abc, move.Input{Hold: true}, ""},
	} {
		w := newWorld(t, cuts...)
		c.in.Goals, c.in.Now, c.in.Fresh = c.goals, w.now, func() store.PartitionID { return w.id() }
		effects := move.Next(w.look(&move.Seen{}, c.goals), &move.Seen{}, c.in)
		require.Equal(t, c.want, text(effects), name)
		if len(effects) > 0 {
			swap := effects[0].(move.Swap)
			require.Len(t, swap.Goals, len(swap.Begin))
			require.Len(t, swap.Spans(), len(swap.Begin))
			require.Equal(t, w.root.Epoch+1, swap.Epoch)
			require.NoError(t, w.swap(swap), name)
		}
	}
	// The map limits the batches in flight.
	var many []string
	for i := range mapcodec.MaxBatches + 2 {
		many = append(many, fmt.Sprintf("k%02d", i), fmt.Sprintf("k%02dz", i))
	}
	w := newWorld(t, many...)
	for i := range mapcodec.MaxBatches + 2 {
		// A mover that has waited for all that is in flight.
		goals := []move.Goal{split(fmt.Sprintf("k%02d", i))}
		var s move.Seen
		w.look(&s, goals)
		s.Waited(w.root.Epoch)
		in := move.Input{Goals: goals, Now: w.now, Fresh: func() store.PartitionID { return w.id() }}
		for _, e := range move.Next(w.look(&s, goals), &s, in) {
			if swap, ok := e.(move.Swap); ok {
				if swap.Advance = nil; len(swap.Begin) > 0 {
					require.NoError(t, w.swap(swap))
				}
			}
		}
	}
	require.Len(t, w.root.Batches, mapcodec.MaxBatches)
	// A bucket that is deleted has nothing to do.
	w = newWorld(t, cuts...)
	for _, s := range []partmap.State{partmap.Closing, partmap.Deleted} {
		c, err := mapclient.WithState(w.root, s, w.stamp())
		require.NoError(t, err)
		w.take(c)
	}
	w.now = w.now.Add(time.Hour)
	require.Empty(t, w.next(&move.Seen{}, abc))
}

// Draining takes a partition away as a whole only where nothing else is in it, or comes
// into it.
func TestWhatIsRemovedWhole(t *testing.T) {
	drained := func(w *world) string {
		var s move.Seen
		w.look(&s, nil)
		s.Waited(w.root.Epoch)
		w.advance(w.root.Batches[0].ID, partmap.Draining)
		w.look(&s, nil)
		s.Waited(w.root.Epoch)
		return text(w.next(&s, nil))
	}
	w := newWorld(t, "m")
	w.begin(move.Split(nil, b("m"), 0, b("g")))
	require.Equal(t, `remove 1 ranges from ["g", "m") on`, drained(w))
	w = newWorld(t, "m")
	w.begin(move.Split(nil, b("m"), 1, b("c"), b("g")))
	require.Equal(t, `remove 2 ranges from ["", "c") on`, drained(w))
	w = newWorld(t, "m")
	w.begin(move.Split(nil, b("m"), -1, b("g")))
	require.Equal(t, `remove the partition of ["", "g")`, drained(w))

	// Goals do not begin two batches that leave one partition. If there are two, each removes its own ranges.
	leaves := func(batch uint64, start, end string) partmap.Range {
		return partmap.Range{Entry: partmap.Entry{
			Start: b(start), Partition: store.PartitionID{1}, To: store.PartitionID{byte(batch), 1}, Batch: batch,
		}, End: b(end), Phase: partmap.Draining}
	}
	v := &move.View{Root: &partmap.Root{Epoch: 9, Batches: []partmap.Batch{
		{ID: 2, Phase: partmap.Draining, Ranges: 1}, {ID: 3, Phase: partmap.Draining, Ranges: 1},
	}}, Ranges: []partmap.Range{leaves(2, "", "g"), leaves(3, "g", "m")}}
	var s move.Seen
	move.Next(v, &s, move.Input{})
	s.Waited(9)
	require.Equal(t, `remove 1 ranges from ["", "g") on + remove 1 ranges from ["g", "m") on`,
		text(move.Next(v, &s, move.Input{})))
}

// What effects are called.
func TestEffectsInWords(t *testing.T) {
	task := func(p partmap.Phase, ranges int, whole bool) move.Task {
		return move.Task{
			Batch: 7, Phase: p, Ranges: make([]partmap.Range, ranges), Whole: whole,
			Range: partmap.Range{Entry: partmap.Entry{Start: b("a"), Partition: store.PartitionID{1}}, End: b("c")},
		}
	}
	for _, c := range []struct {
		e         move.Effect
		key, text string
	}{
		{move.Wait{Epoch: 3}, "wait", "wait for epoch 3"},
		{move.Swap{Reopen: true}, "swap", "swap: reopen"},
		{move.Swap{Begin: make([]partmap.Move, 2), Advance: []move.Step{{Batch: 4, To: partmap.Copying}},
			Settle: []move.Settlement{{Batch: 5}}, Swept: []uint64{6}}, "swap",
			"swap: begin 2 moves; batch 4 to copying; batch 5 settled; batch 6 swept"},
		{task(partmap.Copying, 0, false), `copy 7 "a"`, `copy ["a", "c")`},
		{task(partmap.Verifying, 0, false), `compare 7 "a"`, `compare ["a", "c")`},
		{task(partmap.Draining, 2, false), `remove 7 "a"`, `remove 2 ranges from ["a", "c") on`},
		{task(partmap.Draining, 2, true), `remove 7 "a"`, "remove partition 01000000-0000-0000-0000-000000000000"},
		{task(partmap.Settled, 0, false), `sweep 7 "a"`, `sweep ["a", "c")`},
		{move.Collect{Nodes: make([]store.NodeID, 3)}, "collect", "collect 3 nodes"},
	} {
		require.Equal(t, c.key, c.e.Key())
		require.Equal(t, c.text, c.e.String())
	}
}

// Goals are the same only where all that they want is.
func TestGoalsAreCompared(t *testing.T) {
	full := func() move.Goal {
		return move.Goal{Start: b("a"), End: b("f"), Cuts: [][]byte{b("b"), b("c")}, Stay: 1, Keep: []int{0},
			Leave: store.PartitionID{1}, PinUntil: 5}
	}
	a, same := full(), full()
	require.True(t, a.Equal(&same))
	for name, spoil := range map[string]func(g *move.Goal){
		"start": func(g *move.Goal) { g.Start = nil }, "end": func(g *move.Goal) { g.End = nil }, "cuts": func(g *move.Goal) { g.Cuts[1] = b("d") },
		"a cut less": func(g *move.Goal) { g.Cuts = g.Cuts[:1] }, "stay": func(g *move.Goal) { g.Stay = 0 }, "keep": func(g *move.Goal) { g.Keep = nil },
		"leave": func(g *move.Goal) { g.Leave = store.PartitionID{} }, "pin": func(g *move.Goal) { g.PinUntil = 0 },
	} {
		o := full()
		spoil(&o)
		require.False(t, a.Equal(&o), name)
		require.False(t, o.Equal(&a), name)
	}
}

// What was seen of a batch that is over is forgotten, and a wait is never undone.
func TestSeenForgetsWhatIsOver(t *testing.T) {
	w := newWorld(t, "m")
	goals := []move.Goal{move.Split(nil, b("m"), 0, b("g"))}
	w.begin(goals...)
	id := w.root.Batches[0].ID
	var s move.Seen
	s.Waited(w.root.Epoch)
	s.Waited(1)
	require.Equal(t, fmt.Sprintf("swap: batch %d to copying", id), text(w.next(&s, nil)), "the earlier wait holds")
	s.Did(move.Task{Batch: 99}) // of nobody
	w.advance(id, partmap.Settled)
	require.NoError(t, w.swap(move.Swap{Swept: []uint64{id}}))
	require.Empty(t, w.next(&s, nil))
	m := &theMap{w: w}
	_, err := move.Look(w.t.Context(), w.root, m, &s, nil)
	require.NoError(t, err)
	require.Zero(t, m.read, "nothing is in flight")
}

// What lies between two places is not read, however short the keys are.
func TestLookPassesOverWhatLiesBetween(t *testing.T) {
	var cuts []string
	for c := 'a'; c <= 'z'; c++ {
		cuts = append(cuts, string(c))
	}
	w := newWorld(t, cuts...)
	for _, goals := range [][]move.Goal{
		{move.Merge(b("c"), b("d")), move.Merge(b("x"), b("y"))},
		{move.Merge(b("x"), b("y")), move.Merge(b("c"), b("d"))},
		{move.Merge(b("c"), b("d")), move.Merge(b("c"), b("d")), move.Merge(b("x"), b("y"))},
	} {
		m := &theMap{w: w}
		v, err := move.Look(w.t.Context(), w.root, m, &move.Seen{}, goals)
		require.NoError(t, err)
		require.Len(t, v.Ranges, 2)
		require.Len(t, v.Spans(), 2)
		require.LessOrEqual(t, m.read, 6, "each, the one before and the one after it")
	}
}

// A place without an end includes all that begins within it.
func TestLookToTheEnd(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d", "e")
	goals := []move.Goal{move.Merge(b("b"), nil), move.Merge(b("c"), b("d"))}
	v, err := move.Look(w.t.Context(), w.root, &theMap{w: w}, &move.Seen{}, goals)
	require.NoError(t, err)
	require.Len(t, v.Ranges, 4)
	require.Equal(t, []store.Bounds{{Start: b("b")}}, v.Spans())
}

// noHistory is a map whose nodes can't be searched for what changed.
type noHistory struct{ theMap }

func (noHistory) RangesSince(context.Context, *partmap.Root, uint64) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) { yield(partmap.Range{}, errAway) }
}

// A search for the ranges of others' batches that fails once is told, though all else can be read.
func TestASearchThatFails(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.begin(move.Merge(b("a"), b("c")))
	_, err := move.Look(w.t.Context(), w.root, &noHistory{theMap{w: w}}, &move.Seen{}, nil)
	require.ErrorIs(t, err, errAway)
}

// A goal where the view lacks a range is impossible.
func TestAGoalOutsideTheView(t *testing.T) {
	from := func(start, end string) partmap.Range {
		return partmap.Range{Entry: partmap.Entry{Start: b(start), Partition: store.PartitionID{start[0]}}, End: b(end)}
	}
	for _, ranges := range [][]partmap.Range{
		nil, {from("a", "b"), from("c", "d")}, {from("b", "c"), from("c", "d")}, {from("a", "b"), from("b", "c")},
	} {
		g := move.Merge(b("a"), b("d"))
		verdict, _, err := g.Judge(&move.View{Root: &partmap.Root{}, Ranges: ranges}, time.Now(), nil)
		require.Equal(t, move.Impossible, verdict)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}

// The view of a move that took more ranges, some of which have settled, has those that move.
func TestLookDropsWhatHasSettled(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d", "e")
	w.begin(move.Merge(b("b"), b("d")))
	var s move.Seen
	s.Began(w.root.Batches[0].ID, []store.Bounds{{}})
	v, err := move.Look(t.Context(), w.root, &theMap{w: w}, &s, nil)
	require.NoError(t, err)
	require.Equal(t, []store.Bounds{{Start: b("b"), End: b("d")}}, v.Spans())
}

// What the makers of goals make.
func TestGoals(t *testing.T) {
	rg := partmap.Range{Entry: partmap.Entry{Start: b("a"), Partition: store.PartitionID{3}}, End: b("c")}
	require.Equal(t, move.Goal{Start: b("a"), End: b("c"), Cuts: [][]byte{b("b")}, Stay: 2},
		move.Split(b("a"), b("c"), 2, b("b")))
	require.Equal(t, move.Goal{Start: b("a"), End: b("c"), Stay: -1}, move.Merge(b("a"), b("c")))
	require.Equal(t, move.Goal{Start: b("a"), End: b("c"), Stay: -1, Leave: store.PartitionID{3}}, move.Refresh(&rg))
	require.Equal(t, time.Minute, move.ReopenAfter)
}
