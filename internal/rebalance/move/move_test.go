package move_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// world is a map without a store: effects on rows are only noted.
type world struct {
	t     *testing.T
	root  *partmap.Root
	nodes map[store.NodeID][]byte
	now   time.Time
	ids   uint64
}

func (w *world) id() (id [16]byte) {
	w.ids++
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) stamp() partmap.Stamp {
	return partmap.Stamp{Token: w.id(), Now: w.now, NewNode: func() store.NodeID { return w.id() }}
}

func (w *world) read(id store.NodeID) ([]byte, error) {
	blob, ok := w.nodes[id]
	if !ok {
		return nil, store.Errorf(store.NotFound, "node %s", id)
	}
	return blob, nil
}

// newWorld has a range below each cut and one above the last.
func newWorld(t *testing.T, cuts ...string) *world {
	w := &world{t: t, nodes: map[store.NodeID][]byte{}, now: time.Unix(1_000_000, 0)}
	entries := []partmap.Entry{{Partition: w.id()}}
	for _, c := range cuts {
		entries = append(entries, partmap.Entry{Start: []byte(c), Partition: w.id()})
	}
	change, err := partmap.New(w.id(), 0, entries, w.stamp())
	require.NoError(t, err)
	w.take(change)
	return w
}

func (w *world) take(c partmap.Change) {
	for _, n := range c.Nodes {
		w.nodes[n.ID] = n.Blob
	}
	w.root = c.Next
	require.Empty(w.t, partmap.Validate(w.root, w.read))
}

func (w *world) swap(e move.Swap) error {
	if e.Reopen {
		c, err := mapclient.WithState(w.root, partmap.Open, w.stamp())
		if err == nil {
			w.take(c)
		}
		return err
	}
	edit := partmap.NewEdit(w.root, w.stamp(), w.read)
	for _, s := range e.Advance {
		if err := edit.Advance(s.Batch); err != nil {
			return err
		}
	}
	for _, s := range e.Settle {
		if err := edit.Settle(s.Batch, s.Spans...); err != nil {
			return err
		}
	}
	if err := edit.Swept(e.Swept...); err != nil {
		return err
	}
	if len(e.Begin) > 0 {
		if _, err := edit.Begin(e.Begin...); err != nil {
			return err
		}
	}
	c, err := edit.Change()
	if err == nil {
		w.take(c)
	}
	return err
}

// theMap is a move.Maps of one map that counts the ranges that were read.
type theMap struct {
	w    *world
	read int
}

func (m *theMap) count(ranges iter.Seq2[partmap.Range, error]) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		for rg, err := range ranges {
			m.read++
			if !yield(rg, err) {
				return
			}
		}
	}
}

func (m *theMap) Ranges(_ context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return m.count(partmap.Ranges(r, m.w.read, from, nil))
}

func (m *theMap) RangeBefore(_ context.Context, r *partmap.Root, cut []byte) (partmap.Range, bool, error) {
	m.read++
	for rg, err := range partmap.Ranges(r, m.w.read, nil, nil) {
		if err != nil || len(cut) > 0 && string(rg.End) == string(cut) {
			return rg, err == nil, err
		}
	}
	return partmap.Range{}, false, nil
}

func (m *theMap) RangesSince(_ context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error] {
	return m.count(partmap.RangesSince(r, m.w.read, epoch))
}

// look compares each view with what the whole map says.
func (w *world) look(s *move.Seen, goals []move.Goal) *move.View {
	v, err := move.Look(w.t.Context(), w.root, &theMap{w: w}, s, goals)
	require.NoError(w.t, err)
	var all, want []partmap.Range
	concerned := map[store.PartitionID]bool{}
	for rg, err := range partmap.Ranges(w.root, w.read, nil, nil) {
		require.NoError(w.t, err)
		all = append(all, rg)
		wanted := slices.ContainsFunc(goals, func(g move.Goal) bool {
			return (len(g.End) == 0 || string(rg.Start) < string(g.End)) &&
				(len(rg.End) == 0 || string(g.Start) < string(rg.End))
		})
		concerned[rg.Partition] = concerned[rg.Partition] || wanted || !rg.To.IsZero() || rg.SweepPending
	}
	for _, rg := range all {
		if concerned[rg.Partition] {
			want = append(want, rg)
		}
	}
	require.Equal(w.t, len(want), len(v.Ranges))
	for i := range want {
		require.True(w.t, string(want[i].Start) == string(v.Ranges[i].Start) &&
			want[i].Partition == v.Ranges[i].Partition, "range %d", i)
	}
	return v
}

func (w *world) next(s *move.Seen, goals []move.Goal) []move.Effect {
	w.look(&move.Seen{}, nil) // as one who knows nothing sees it
	return move.Next(w.look(s, goals), s, move.Input{Goals: goals, Now: w.now,
		Fresh: func() store.PartitionID { return w.id() }})
}

// do carries out an effect and tells a mover of it.
func (w *world) do(s *move.Seen, e move.Effect) {
	switch e := e.(type) {
	case move.Swap:
		require.NoError(w.t, w.swap(e))
		if len(e.Begin) > 0 {
			s.Began(e.Epoch, e.Spans())
		}
	case move.Wait:
		s.Waited(e.Epoch)
	case move.Task:
		s.Did(e)
	}
}

func (w *world) layout() (out []string) {
	for rg, err := range partmap.Ranges(w.root, w.read, nil, nil) {
		require.NoError(w.t, err)
		out = append(out, fmt.Sprintf("%q %s sweep %v", rg.Start, rg.Phase, rg.SweepPending))
	}
	return out
}

func text(effects []move.Effect) string {
	var lines []string
	for _, e := range effects {
		s := e.String()
		if r, ok := e.(move.Task); ok && r.Whole {
			s = fmt.Sprintf("remove the partition of [%q, %q)", r.Range.Start, r.Range.End)
		}
		lines = append(lines, s)
	}
	return strings.Join(lines, " + ")
}

func b(s string) []byte { return []byte(s) }

// Each scenario is what one mover does, step by step, until nothing is left. What
// is due together stands in one line.
func TestScenarios(t *testing.T) {
	for _, c := range []struct {
		name  string
		cuts  []string
		goals func(w *world) []move.Goal
		steps string
		end   []string
	}{{
		name:  "a split leaves one part where it is, and removes only what left",
		goals: func(*world) []move.Goal { return []move.Goal{move.Split(nil, nil, 0, b("m"))} },
		steps: `
			swap: begin 1 moves
			wait for epoch 2
			swap: batch 2 to copying
			wait for epoch 3
			copy ["m", "")
			swap: batch 2 to verifying
			wait for epoch 4
			compare ["m", "")
			swap: batch 2 to draining
			wait for epoch 5
			remove 1 ranges from ["m", "") on
			swap: batch 2 settled
			wait for epoch 6
			sweep ["m", "")
			swap: batch 2 swept`,
		end: []string{"", "m"},
	}, {
		name: "a merge copies each source, removes both partitions, and sweeps one range",
		cuts: []string{"g", "t"},
		goals: func(*world) []move.Goal {
			return []move.Goal{move.Merge(nil, b("t"))}
		},
		steps: `
			swap: begin 1 moves
			wait for epoch 2
			swap: batch 2 to copying
			wait for epoch 3
			copy ["", "g") + copy ["g", "t")
			swap: batch 2 to verifying
			wait for epoch 4
			compare ["", "g") + compare ["g", "t")
			swap: batch 2 to draining
			wait for epoch 5
			remove the partition of ["", "g") + remove the partition of ["g", "t")
			swap: batch 2 settled
			wait for epoch 6
			sweep ["", "t")
			swap: batch 2 swept`,
		end: []string{"", "t"},
	}, {
		name: "moves that do not touch share every swap and every wait",
		cuts: []string{"g", "t"},
		goals: func(w *world) []move.Goal {
			rg := partmap.Range{Entry: w.root.Entries[1], End: b("t")}
			return []move.Goal{move.Split(nil, b("g"), 0, b("c")), move.Refresh(&rg), move.Split(b("t"), nil, 0, b("x"))}
		},
		steps: `
			swap: begin 3 moves
			wait for epoch 2
			swap: batch 2 to copying
			wait for epoch 3
			copy ["c", "g") + copy ["g", "t") + copy ["x", "")
			swap: batch 2 to verifying
			wait for epoch 4
			compare ["c", "g") + compare ["g", "t") + compare ["x", "")
			swap: batch 2 to draining
			wait for epoch 5
			remove 1 ranges from ["c", "g") on + remove the partition of ["g", "t") + remove 1 ranges from ["x", "") on
			swap: batch 2 settled
			wait for epoch 6
			sweep ["c", "g") + sweep ["g", "t") + sweep ["x", "")
			swap: batch 2 swept`,
		end: []string{"", "c", "g", "t", "x"},
	}, {
		name:  "a split whose parts were cut further meanwhile is met, and joins nothing",
		cuts:  []string{"c", "g", "m", "t"},
		goals: func(*world) []move.Goal { return []move.Goal{move.Split(b("c"), nil, 0, b("m"))} },
		end:   []string{"", "c", "g", "m", "t"},
	}, {
		name:  "what is met already asks for nothing",
		cuts:  []string{"m"},
		goals: func(*world) []move.Goal { return []move.Goal{move.Split(nil, nil, 0, b("m"))} },
		end:   []string{"", "m"},
	}, {
		name: "what does not fit the map asks for nothing either",
		cuts: []string{"m"},
		goals: func(*world) []move.Goal {
			return []move.Goal{move.Merge(b("k"), nil), move.Split(nil, b("m"), 0, b("z"))}
		},
		end: []string{"", "m"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.cuts...)
			goals := c.goals(w)
			var s move.Seen
			var steps []string
			for {
				effects := w.next(&s, goals)
				if len(effects) == 0 {
					break
				}
				require.Less(t, len(steps), 50)
				steps = append(steps, text(effects))
				for _, e := range effects {
					w.do(&s, e)
				}
			}
			var want []string
			for _, line := range strings.Split(strings.TrimSpace(c.steps), "\n") {
				if line = strings.TrimSpace(line); line != "" {
					want = append(want, line)
				}
			}
			require.Equal(t, want, steps)
			var end []string
			for _, c := range c.end {
				end = append(end, fmt.Sprintf("%q settled sweep false", c))
			}
			require.Equal(t, end, w.layout())
		})
	}
}

func TestWhoFindsAMoveWaitsAnewAndStartsOver(t *testing.T) {
	w := newWorld(t)
	goals := []move.Goal{move.Split(nil, nil, 1, b("m"))}
	var s move.Seen
	for range 5 { // up to and with the copy
		for _, e := range w.next(&s, goals) {
			w.do(&s, e)
		}
	}
	require.Equal(t, "swap: batch 2 to verifying", text(w.next(&s, goals)))

	var other move.Seen
	require.Equal(t, "wait for epoch 3", text(w.next(&other, nil)), "it knows neither the wait nor the goal")
	other.Waited(2)
	require.Equal(t, "wait for epoch 3", text(w.next(&other, nil)), "an older wait does not count")
	other.Waited(3)
	require.Equal(t, `copy ["", "m")`, text(w.next(&other, nil)), "it copies again, to the same destination")

	// Somebody else takes the batch on: what was done in the phase before counts no
	// more, and the wait begins anew.
	w.do(&s, w.next(&s, goals)[0])
	require.Equal(t, "wait for epoch 4", text(w.next(&other, nil)))
	other.Did(move.Task{Batch: 2, Phase: partmap.Copying, Range: partmap.Range{}})
	other.Waited(4)
	require.Equal(t, `compare ["", "m")`, text(w.next(&other, nil)),
		"a late report of the phase before changes nothing")
}

func TestClosingBuckets(t *testing.T) {
	w := newWorld(t)
	closing, err := mapclient.WithState(w.root, partmap.Closing, w.stamp())
	require.NoError(t, err)
	w.take(closing)
	goals := []move.Goal{move.Split(nil, nil, 0, b("m"))}
	var s move.Seen
	require.Empty(t, w.next(&s, goals), "nothing begins in a closing bucket")
	w.now = w.now.Add(move.ReopenAfter)
	require.Empty(t, w.next(&s, goals), "not before it is over")
	w.now = w.now.Add(time.Second)
	require.Equal(t, "swap: reopen", text(w.next(&s, goals)))
	w.do(&s, w.next(&s, goals)[0])
	require.Equal(t, partmap.Open, w.root.State)
	require.Equal(t, "swap: begin 1 moves", text(w.next(&s, goals)))
}

func TestHold(t *testing.T) {
	w := newWorld(t)
	goals := []move.Goal{move.Split(nil, nil, 0, b("m"))}
	v := w.look(&move.Seen{}, goals)
	require.Empty(t, move.Next(v, &move.Seen{}, move.Input{Goals: goals, Hold: true, Now: w.now}))

	// What has begun goes on to its end, and nothing else begins with it.
	var s move.Seen
	w.do(&s, w.next(&s, goals)[0])
	others := append(goals, move.Split(b("m"), nil, 0, b("t")))
	for steps := 0; ; steps++ {
		require.Less(t, steps, 100)
		v := w.look(&s, others)
		effects := move.Next(v, &s, move.Input{Goals: others, Hold: true, Now: w.now,
			Fresh: func() store.PartitionID { return w.id() }})
		if len(effects) == 0 {
			break
		}
		for _, e := range effects {
			if swap, ok := e.(move.Swap); ok {
				require.Empty(t, swap.Begin)
			}
			w.do(&s, e)
		}
	}
	require.Empty(t, w.root.Batches)
	require.EqualValues(t, 2, w.root.Ranges)
}

func TestPinnedCutsStay(t *testing.T) {
	w := newWorld(t)
	g := move.Split(nil, nil, 0, b("g"), b("m"))
	g.PinUntil = w.now.Unix() + 3600
	w.finish([]move.Goal{g})
	v := w.look(&move.Seen{}, []move.Goal{{}})
	judge := func(g move.Goal) (move.Verdict, error) {
		verdict, _, err := g.Judge(v, w.now, func() store.PartitionID { return w.id() })
		return verdict, err
	}
	verdict, err := judge(move.Merge(nil, b("m")))
	require.Equal(t, move.Impossible, verdict)
	require.ErrorContains(t, err, "pinned until")
	w.now = w.now.Add(time.Hour)
	verdict, err = judge(move.Merge(nil, b("m")))
	require.NoError(t, err)
	require.Equal(t, move.Ready, verdict)
}

func (w *world) finish(goals []move.Goal) {
	var s move.Seen
	for range 200 {
		effects := w.next(&s, goals)
		if len(effects) == 0 {
			return
		}
		for _, e := range effects {
			w.do(&s, e)
		}
	}
	w.t.Fatal("no end")
}

// Two movers work on random goals, an effect at a time, and now and then forget
// everything. They come to the layout to which one comes that never forgets
// (I10), and do nothing on a phase whose wait they have not seen the end of.
func TestForgettingChangesNothing(t *testing.T) {
	seed := seed.Number(t)
	r := rand.New(rand.NewPCG(seed, 0))
	forgot, conflicts := 0, 0
	for range 150 {
		var cuts []string
		for c := 'a'; c <= 'z'; c++ {
			if r.IntN(5) == 0 {
				cuts = append(cuts, string(c))
			}
		}
		calm, w := newWorld(t, cuts...), newWorld(t, cuts...)
		goals := randomGoals(r, cuts)
		calm.finish(goals)

		type mover struct {
			seen   move.Seen
			waited uint64
			entry  map[uint64]uint64 // by batch: the epoch at which this mover saw its phase first
			phase  map[uint64]partmap.Phase
		}
		fresh := func() *mover { return &mover{entry: map[uint64]uint64{}, phase: map[uint64]partmap.Phase{}} }
		movers := []*mover{fresh(), fresh()}
		for idle, steps := 0, 0; idle < 2; steps++ {
			require.Less(t, steps, 20_000, "EVENKEEL_SEED=%d", seed)
			i := r.IntN(2)
			if r.IntN(12) == 0 {
				movers[i] = fresh()
				forgot++
			}
			m := movers[i]
			for _, b := range w.root.Batches {
				if p, known := m.phase[b.ID]; !known || p != b.Phase {
					m.phase[b.ID], m.entry[b.ID] = b.Phase, w.root.Epoch
				}
			}
			effects := w.next(&m.seen, goals)
			if len(effects) == 0 {
				idle++
				movers[1-i] = fresh() // the other one agrees, whatever it knows
				continue
			}
			idle = 0
			e := effects[r.IntN(len(effects))]
			held := func(batch uint64) {
				require.GreaterOrEqual(t, m.waited, m.entry[batch], "EVENKEEL_SEED=%d: %s before the wait", seed, e)
			}
			switch e := e.(type) {
			case move.Wait:
				m.waited = max(m.waited, e.Epoch)
			case move.Task:
				held(e.Batch)
			case move.Swap:
				for _, s := range e.Advance {
					held(s.Batch)
				}
				for _, s := range e.Settle {
					held(s.Batch)
				}
				for _, s := range e.Swept {
					held(s)
				}
				if r.IntN(8) == 0 {
					conflicts++
					continue // the swap met a conflict
				}
			}
			w.do(&m.seen, e)
		}
		require.Equal(t, calm.layout(), w.layout(), "EVENKEEL_SEED=%d", seed)
		for _, line := range w.layout() {
			require.Contains(t, line, "settled sweep false")
		}
	}
	require.Positive(t, forgot)
	require.Positive(t, conflicts)
}

func randomGoals(r *rand.Rand, cuts []string) (goals []move.Goal) {
	starts := append([]string{""}, cuts...)
	for i := 0; i < len(starts); {
		n := min(1+r.IntN(3), len(starts)-i)
		g := move.Goal{Start: b(starts[i]), Stay: r.IntN(4) - 1}
		end := ""
		if i+n < len(starts) {
			end = starts[i+n]
			g.End = b(end)
		}
		for c := 'a'; c <= 'z'; c++ {
			if s := string(c); s > starts[i] && (end == "" || s < end) && r.IntN(6) == 0 {
				g.Cuts = append(g.Cuts, b(s))
			}
		}
		goals = append(goals, g)
		i += n
	}
	r.Shuffle(len(goals), func(i, j int) { goals[i], goals[j] = goals[j], goals[i] })
	return goals
}

func TestCollectorsWaitForPendingSwapsAndReaders(t *testing.T) {
	id := func(i byte) store.NodeID { return store.NodeID{i} }
	nodes := []move.Node{{ID: id(1), Epoch: 3}, {ID: id(2), Epoch: 5}, {ID: id(3), Epoch: 6}, {ID: id(4), Epoch: 2}}
	named := map[store.NodeID]bool{id(1): true}
	now := time.Unix(1000, 0)
	var u move.Unnamed
	require.Empty(t, u.Due(5, named, nodes, now, time.Hour), "readers have an hour")
	require.Empty(t, u.Due(5, named, nodes, now.Add(59*time.Minute), time.Hour))
	due := u.Due(5, named, nodes, now.Add(time.Hour), time.Hour)
	slices.SortFunc(due, func(a, b store.NodeID) int { return int(a[0]) - int(b[0]) })
	require.Equal(t, []store.NodeID{id(2), id(4)}, due,
		"not what is named, nor what a pending swap to epoch 6 may name")
	require.Empty(t, u.Due(6, map[store.NodeID]bool{id(1): true, id(3): true}, nodes[:3], now.Add(time.Hour),
		2*time.Hour))
	var restarted move.Unnamed
	require.Empty(t, restarted.Due(9, nil, nodes, now.Add(9*time.Hour), time.Hour), "a restart begins to count anew")
}

// A map of many ranges is not read for the sake of a few: neither by who begins a
// move nor by who finds it.
func TestLookReadsWhatMovesOnly(t *testing.T) {
	var cuts []string
	for i := range 30_000 {
		cuts = append(cuts, fmt.Sprintf("%05d", i))
	}
	w := newWorld(t, cuts...)
	goals := []move.Goal{move.Split(b("11111"), b("11112"), 0, b("11111x")), move.Merge(b("22222"), b("22225"))}
	var s move.Seen
	most, found := 0, 0
	for range 200 {
		m := &theMap{w: w}
		v, err := move.Look(w.t.Context(), w.root, m, &s, goals)
		require.NoError(t, err)
		most = max(most, m.read)
		finder := &theMap{w: w}
		other, err := move.Look(w.t.Context(), w.root, finder, &move.Seen{}, goals)
		require.NoError(t, err)
		require.Equal(t, v, other)
		found = max(found, finder.read)
		effects := move.Next(v, &s, move.Input{Goals: goals, Now: w.now,
			Fresh: func() store.PartitionID { return w.id() }})
		if len(effects) == 0 {
			require.Len(t, w.layout(), 30_000)
			require.Less(t, most, 100)
			require.Less(t, found, 5000, "the nodes that the batch has written, and no others")
			return
		}
		for _, e := range effects {
			w.do(&s, e)
		}
	}
	t.Fatal("no end")
}
