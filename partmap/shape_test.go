package partmap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

func startsOf(n, length int) (out []Child) {
	for i := range n {
		out = append(out, Child{Start: fmt.Appendf(nil, "%0*d", length, i)})
	}
	return out
}

// TestNodesAreFilledEvenly: as few nodes as their limits allow, none of them larger than
// another by more than one item.
func TestNodesAreFilledEvenly(t *testing.T) {
	for n := 1; n <= 60; n++ {
		for most := 2; most <= 9; most++ {
			for _, byBytes := range []bool{false, true} {
				items, limit, keys := startsOf(n, 10), most, 1_000_000
				if byBytes {
					limit, keys = 1_000_000, 10*most
				}
				var sizes []int
				out := pack(items, limit, keys, childStart, func(run []Child) Child {
					require.Equal(t, string(items[sum(sizes)].Start), string(run[0].Start))
					sizes = append(sizes, len(run))
					return run[0]
				})
				require.Len(t, out, (n+most-1)/most, "%d items, %d in a node, bytes %v: %v", n, most, byBytes, sizes)
				require.Equal(t, n, sum(sizes))
				require.LessOrEqual(
					t, slices.Max(sizes)-slices.Min(sizes), 1, "%d items, %d in a node, bytes %v: %v", n, most, byBytes, sizes,
				)
			}
		}
	}
	// Long keys at one end make no more nodes than there need be.
	for _, longAt := range []int{0, 5} {
		items := startsOf(10, 2)
		for i := range items[:5] {
			items[longAt+i].Start = make([]byte, 100)
		}
		var sizes []int
		pack(items, 5, 1_000_000, childStart, func(run []Child) Child {
			sizes = append(sizes, len(run))
			return run[0]
		})
		require.Equal(t, []int{5, 5}, sizes)
	}
	// One that is longer than all that a node should have still gets one of its own.
	var sizes []int
	pack(
		[]Child{{Start: []byte("a")}, {Start: make([]byte, 500)}, {Start: []byte("c")}},
		100,
		50,
		childStart,
		func(run []Child) Child {
			sizes = append(sizes, len(run))
			return run[0]
		},
	)
	require.Equal(t, 3, sum(sizes))
}

func sum(numbers []int) (n int) {
	for _, x := range numbers {
		n += x
	}
	return n
}

// TestSparse: below a quarter of both limits.
func TestSparse(t *testing.T) {
	for _, c := range []struct {
		n, length int
		want      bool
	}{{24, 10, true}, {25, 10, false}, {24, 41, true}, {20, 49, true}, {20, 50, false}, {0, 1, true}} {
		require.Equal(t, c.want, sparse(startsOf(c.n, c.length), 100, 4000, childStart), "%v", c)
	}
}

// TestSparseNodesJoinTheirNeighbours: what a change leaves nearly empty is not left so,
// and nothing else is written.
func TestSparseNodesJoinTheirNeighbours(t *testing.T) {
	f := fill{entries: 20, children: 20, keys: 100_000, root: 2000}
	var entries []Entry
	for i := range 200 {
		entries = append(entries, Entry{Start: fmt.Appendf(nil, "c%05d", i), Partition: store.PartitionID{1, byte(i)}})
	}
	entries[0].Start = nil
	for from := range 10 { // segments of 20 ranges
		c, err := newMap(testBucket, 0, slices.Clone(entries), counting(), f)
		require.NoError(t, err)
		b := blobs{}
		root := b.apply(t, c)
		require.Equal(t, uint8(1), root.Height)
		require.Len(t, root.Children, 10)
		for _, c := range []struct{ left, nodes, replaced int }{{5, 1, 1}, {4, 2, 2}, {1, 2, 2}} {
			e := newEdit(root, counting(), b.read)
			e.fill = f
			r := replacement{Start: entries[20*from].Start, Entries: entries[20*from : 20*from+c.left]}
			if from < 9 {
				r.End = entries[20*from+20].Start
			}
			require.NoError(t, e.replace(r))
			change, err := e.Change()
			require.NoError(t, err)
			require.Len(t, change.Nodes, c.nodes, "segment %d with %d left", from, c.left)
			require.Len(t, change.Replaced, c.replaced, "segment %d with %d left", from, c.left)
			require.EqualValues(t, 180+c.left, change.Next.Ranges)
		}
	}
}

// TestRangesSinceAnEpoch: all that changed at an epoch or later, and no node is read below
// one that is older.
func TestRangesSinceAnEpoch(t *testing.T) {
	b, root, f := deep(t)
	changed := map[uint64]string{}
	for _, i := range []int{10, 150, 290} {
		at := fmt.Sprintf("c%03d", i)
		e := newEdit(root, counting(), b.read)
		e.fill = f
		end := fmt.Appendf(nil, "c%03d", i+1)
		require.NoError(
			t,
			e.replace(
				replacement{Start: []byte(at), End: end, Entries: []Entry{{Start: []byte(at), Partition: store.PartitionID{9}}}},
			),
		)
		c, err := e.Change()
		require.NoError(t, err)
		root = b.apply(t, c)
		changed[root.Epoch] = at
	}
	reads := map[uint64]int{}
	for since := uint64(0); since <= root.Epoch+1; since++ {
		var got []string
		last := ""
		for r, err := range RangesSince(root,
			func(id store.NodeID) ([]byte, error) { reads[since]++; return b.read(id) }, since) {
			require.NoError(t, err)
			require.True(t, len(got) == 0 || last < string(r.Start))
			last = string(r.Start)
			got = append(got, last)
		}
		for epoch, at := range changed {
			if epoch >= since {
				require.Contains(t, got, at, "since epoch %d", since)
			}
		}
		switch since {
		case 0, 1:
			require.Len(t, got, 300)
		case root.Epoch:
			require.LessOrEqual(t, len(got), f.entries)
		case root.Epoch + 1:
			require.Empty(t, got)
		}
	}
	require.Less(t, reads[root.Epoch], reads[0]/3)
	require.Equal(t, len(root.Children), reads[root.Epoch+1], "the topmost nodes only")
	for range RangesSince(root, b.read, 0) {
		break
	}
	var told []string
	for r, err := range RangesSince(sound(), nil, 100) {
		require.NoError(t, err)
		told = append(told, string(r.Start))
	}
	want := []string{"", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"}
	require.Equal(t, want, told, "what is in the root itself is always told")
}

// TestNewMapsAreChecked: entries that do not tile all keys make none.
func TestNewMapsAreChecked(t *testing.T) {
	at := func(starts ...string) (out []Entry) {
		for _, s := range starts {
			out = append(out, Entry{Start: []byte(s), Partition: store.PartitionID{1}})
		}
		return out
	}
	long := "x" + string(make([]byte, store.MaxKeyBytes))
	for want, entries := range map[string][]Entry{
		`the entries do not begin at ""`:              nil,
		`the entries do not begin at "" `:             at("a"),
		`the cut "a" is not above the one before it`:  at("", "a", "a"),
		`the cut "a" is not above the one before it `: at("", "b", "a"),
		`has 65536 bytes: at most 65535`:              at("", long),
	} {
		c, err := New(testBucket, 0, entries, counting())
		require.Equal(t, store.InvalidArgument, store.KindOf(err), want)
		require.ErrorContains(t, err, strings.TrimSpace(want))
		require.Nil(t, c.Next)
	}
	_, err := New(testBucket, 0, at("", long[:store.MaxKeyBytes]), counting())
	require.NoError(t, err)
	require.ErrorContains(t, checkEntries(at("a", "c"), []byte("a"), []byte("c")),
		`the cut "c" is not below the end "c"`)
	require.NoError(t, checkEntries(at("a", "c"), []byte("a"), []byte("d")))
	require.Len(t, mapcodec.Clip(make([]byte, 64)), 64)
	require.Equal(t, string(make([]byte, 64))+"…", string(mapcodec.Clip(make([]byte, 65))))
}

// TestAgain: a change of nothing is one epoch later and shares no batches.
func TestAgain(t *testing.T) {
	same := Again(sound(), counting())
	require.Equal(t, sound().Version(), same.Old)
	want := sound()
	want.Epoch, want.ChangedAt = 10, int64(testNow)*1e6
	require.Equal(t, want, same.Next)
	require.Empty(t, same.Nodes)
	root := sound()
	Again(root, counting()).Next.Batches[0].Phase = Draining
	require.Equal(t, Settled, root.Batches[0].Phase)
	require.Equal(
		t, []string{"unknown state", "open", "closing", "deleted", "unknown state"},
		[]string{State(0).String(), Open.String(), Closing.String(), Deleted.String(), State(4).String()},
	)
}

// TestPhaseNames: each phase has one.
func TestPhaseNames(t *testing.T) {
	for i, name := range []string{"settled", "marking", "copying", "verifying", "draining"} {
		require.Equal(t, name, Phase(i).String())
	}
	require.Equal(t, "phase 5", Phase(phases).String())
	require.Equal(t, Rules{}, Phase(phases).Rules())
	require.Equal(t, "problem 13", problemKind(problemKinds).String())
	require.Equal(t, "bad root", badRoot.String())
}

// TestPhaseTable: what is written to, read and left behind in each phase, and what comes
// after it.
func TestPhaseTable(t *testing.T) {
	for p, want := range map[Phase]struct {
		rules string
		next  Phase
	}{
		Settled:   {"to source, read source", Marking},
		Marking:   {"to source, markers, read source, read destination", Copying},
		Copying:   {"to destination, markers, read source, read destination", Verifying},
		Verifying: {"to destination, markers, read source, read destination, write through", Draining},
		Draining:  {"to destination, markers, read destination", Settled},
	} {
		r := p.Rules()
		got := "to " + map[bool]string{false: "source", true: "destination"}[r.WriteDestination]
		for _, x := range []struct {
			has  bool
			text string
		}{
			{r.Markers, "markers"}, {r.ReadSource, "read source"}, {r.ReadDestination, "read destination"},
			{r.WriteThrough, "write through"},
		} {
			if x.has {
				got += ", " + x.text
			}
		}
		require.Equal(t, want.rules, got, p.String())
		require.Equal(t, want.next, transitions[p].next)

		rg := Range{Entry: Entry{Partition: store.PartitionID{1}, To: store.PartitionID{2}}, Phase: p}
		require.Equal(t, r.WriteDestination, rg.WriteTo() == rg.To)
		require.Equal(t, !r.WriteDestination, rg.WriteTo() == rg.Partition)
	}
}

// TestRangesContain: from their start on, up to their end.
func TestRangesContain(t *testing.T) {
	for key, want := range map[string][2]bool{
		"": {false, false}, "a": {false, false},
		"b": {true, true}, "b0": {true, true}, "c": {false, true}, "d": {false, true},
	} {
		for i, end := range []string{"c", ""} {
			r := Range{Entry: Entry{Start: []byte("b")}, End: []byte(end)}
			require.Equal(t, want[i], r.Contains([]byte(key)), "%q in [b, %q)", key, end)
		}
	}
}

// TestBatchOf: the phase of the batch with just this id; none has 0.
func TestBatchOf(t *testing.T) {
	r := &Root{Batches: []Batch{{ID: 0, Phase: Marking}, {ID: 1, Phase: Copying}, {ID: 2, Phase: Settled}}}
	for id, want := range []struct {
		phase   Phase
		pending bool
	}{{Settled, false}, {Copying, false}, {Settled, true}, {Settled, false}} {
		p, pending := r.BatchOf(uint64(id))
		require.Equal(t, want.phase, p, id)
		require.Equal(t, want.pending, pending, id)
	}
}

// TestTreesGetLower: as soon as the only node below the root fits into half of it, and
// not before.
func TestTreesGetLower(t *testing.T) {
	heights := map[uint8]int{}
	for n := 2; n < 60; n++ {
		f := fill{entries: 100, children: 10, keys: 100_000, root: 1000 + n}
		var entries []Entry
		for i := range 99 {
			entries = append(entries, Entry{
				Start: fmt.Appendf(nil, "c%02d", i), Partition: store.PartitionID{1, byte(i)},
			})
		}
		entries[0].Start = nil
		c, err := newMap(testBucket, 0, slices.Clone(entries), counting(), f)
		require.NoError(t, err)
		b := blobs{}
		root := b.apply(t, c)
		require.Equal(t, uint8(1), root.Height)
		e := newEdit(root, counting(), b.read)
		e.fill = f
		require.NoError(t, e.replace(replacement{Start: entries[n-1].Start, Entries: entries[n-1 : n]}))
		c, err = e.Change()
		require.NoError(t, err)
		lower := *c.Next
		lower.Height, lower.Entries, lower.Children = 0, entries[:n], nil
		require.Equal(t, len(encodeRoot(&lower, nil)) <= f.root/2, c.Next.Height == 0, "%d ranges", n)
		require.Len(t, c.Nodes, int(c.Next.Height))
		heights[c.Next.Height]++
	}
	require.Greater(t, heights[0], 10)
	require.Greater(t, heights[1], 10)
}

// TestMemoryIsCounted: decoded nodes hold what their parts do.
func TestMemoryIsCounted(t *testing.T) {
	h := mapcodec.Header{Bucket: testBucket, ID: handNode}
	entries := sound().Entries
	entries[0].Start = []byte{}
	s, err := decodeSegment(testBucket, encodeSegment(h, entries))
	require.NoError(t, err)
	// 18 bytes of keys, 10 ends, 9 heads, 9 shorts, a top; 10 places, of which three move.
	require.EqualValues(t, 24+40+72+40+8+320+96+mapcodec.SegmentBytes, s.Bytes())
	x, err := decodeIndex(testBucket, encodeIndex(h, 1, []Child{{Start: []byte{}}, {Start: []byte("k")}}))
	require.NoError(t, err)
	require.EqualValues(t, 8+8+8+8+8+32+mapcodec.IndexBytes, x.Bytes())
	// One end and one place.
	s, err = decodeSegment(testBucket, encodeSegment(h, entries[:1]))
	require.NoError(t, err)
	require.EqualValues(t, 8+32+mapcodec.SegmentBytes, s.Bytes())
	// 100 keys of 8 bytes, as many ends, heads and shorts, 7 tops.
	c := mapcodec.NewCuts(100, func(i int) []byte { return fmt.Appendf(nil, "%08d", i) })
	require.EqualValues(t, 832+416+832+416+32, c.Bytes())
}

// TestSizesOfNodes: documents name them, and limits of the store depend on them.
func TestSizesOfNodes(t *testing.T) {
	require.Equal(t, fill{entries: 1000, children: 256, keys: 262_144, root: 4096}, standard)
	require.Equal(t, 16_384, mapcodec.MaxSettingsBytes)
	require.Equal(t, [2]int{256, 240}, [2]int{mapcodec.SegmentBytes, mapcodec.IndexBytes})
	require.Equal(t, mapcodec.MinEntryBytes, len(entryCode(first, 0)))
	require.Equal(t, mapcodec.MinChildBytes, len(childCode(first)))
}
