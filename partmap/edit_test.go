package partmap

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// sorted is the oracle of a map: its entries in a slice.
type sorted []Entry

func (s sorted) find(key []byte) Entry {
	return s[sort.Search(len(s), func(i int) bool { return string(s[i].Start) > string(key) })-1]
}

func (s sorted) findBefore(key []byte) Entry {
	if len(key) == 0 {
		return s[len(s)-1]
	}
	return s[sort.Search(len(s), func(i int) bool { return string(s[i].Start) >= string(key) })-1]
}

// requireTiles: invariant I1, straight from its words.
func requireTiles(t *testing.T, ranges []Range) {
	t.Helper()
	require.Empty(t, ranges[0].Start, "the first range begins at the lowest key")
	require.Empty(t, ranges[len(ranges)-1].End, "the last range has no end")
	for i := range ranges[1:] {
		require.Equal(t, ranges[i].End, ranges[i+1].Start)
		require.Less(t, string(ranges[i].Start), string(ranges[i].End))
	}
}

// world is a map under test with its oracle.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	style keystyle.Maker
	fill  fill
	blobs blobs
	root  *Root
	model sorted
}

func newWorld(t *testing.T, rng *rand.Rand, cuts int) *world {
	return newWorldOf(t, rng, cuts, keystyle.Any(rng), smallFill(rng))
}

func newWorldOf(t *testing.T, rng *rand.Rand, cuts int, style keystyle.Maker, f fill) *world {
	w := &world{t: t, rng: rng, style: style, fill: f, blobs: blobs{}}
	w.model = someEntries(rng, keystyle.Some(rng, w.style, cuts))
	c, err := newMap(testBucket, 3, slices.Clone(w.model), stampOf(rng), w.fill)
	require.NoError(t, err)
	w.root = w.blobs.apply(t, c)
	return w
}

func (w *world) edit() *edit {
	e := newEdit(w.root, stampOf(w.rng), w.blobs.read)
	e.fill = w.fill
	return e
}

// apply makes an edit's change the present map, and checks what has to hold for
// any change: it names all its new nodes, and what it replaced is what it stopped
// naming; the map is valid and tiles; nodes are within their limits.
func (w *world) apply(e *edit) {
	t := w.t
	t.Helper()
	c, err := e.Change()
	require.NoError(t, err)
	require.Equal(t, w.root.Version(), c.Old)
	require.Equal(t, store.Version{Epoch: w.root.Epoch + 1, Token: e.stamp.Token}, c.Next.Version())
	want, _ := w.blobs.reachable(t, w.root)
	next := w.blobs.apply(t, c)
	require.True(t, slices.IsSortedFunc(c.Replaced, func(a, b store.NodeID) int { return bytes.Compare(a[:], b[:]) }))
	for _, id := range c.Replaced {
		require.True(t, want[id], "it replaces what was not named")
		delete(want, id)
	}
	for _, n := range c.Nodes {
		want[n.ID] = true
		epoch, err := epochOf(testBucket, n)
		require.NoError(t, err)
		require.Equal(t, next.Epoch, epoch)
	}
	named, _ := w.blobs.reachable(t, next)
	require.Equal(t, want, named)
	w.root = next
	w.check()
}

func (w *world) check() {
	t := w.t
	t.Helper()
	require.Empty(t, Validate(w.root, w.blobs.read))
	ranges := w.blobs.ranges(t, w.root)
	requireTiles(t, ranges)
	got := w.blobs.entries(t, w.root)
	require.Equal(t, len(w.model), len(got))
	for i := range got {
		require.True(t, sameEntry(w.model[i], got[i]), "entry %d is\n%+v, want\n%+v", i, got[i], w.model[i])
	}
	ids, _ := w.blobs.reachable(t, w.root)
	for id := range ids {
		var n, most, keys int
		if s, err := Reader(w.blobs.read).segment(testBucket, id); err == nil {
			n, most, keys = s.Len(), w.fill.entries, keyBytes(entriesOf(&s.Entries), entryStart)
		} else {
			x, err := Reader(w.blobs.read).index(testBucket, id)
			require.NoError(t, err)
			n, most, keys = x.Len(), w.fill.children, keyBytes(childrenOf(x), childStart)
		}
		require.LessOrEqual(t, n, most)
		require.LessOrEqual(t, keys, w.fill.keys)
	}
}

func sameEntry(a, b Entry) bool {
	return string(a.Start) == string(b.Start) && a.Partition == b.Partition && a.To == b.To && a.Batch == b.Batch &&
		a.PinUntil == b.PinUntil &&
		a.Created == b.Created
}

// between draws a run of the model's entries: from, to with from < to.
func (w *world) between(from, most int) (int, int) {
	lo := from + w.rng.IntN(len(w.model)-from)
	return lo, lo + 1 + w.rng.IntN(min(most, len(w.model)-lo))
}

func (w *world) startOf(i int) []byte {
	if i == len(w.model) {
		return nil
	}
	return w.model[i].Start
}

// replaceSome replaces one or several runs, by more or by fewer entries.
func (w *world) replaceSome() {
	var reps []replacement
	var next sorted
	done := 0
	for range 1 + w.rng.IntN(4) {
		if done == len(w.model) {
			break
		}
		lo, hi := w.between(done, []int{1, 3, 40, 1000}[w.rng.IntN(4)])
		start, end := w.startOf(lo), w.startOf(hi)
		var cuts [][]byte
		for _, k := range keystyle.Some(w.rng, w.style, w.rng.IntN([]int{1, 4, 60}[w.rng.IntN(3)])+1)[1:] {
			if string(k) > string(start) && (len(end) == 0 || string(k) < string(end)) {
				cuts = append(cuts, k)
			}
		}
		entries := someEntries(w.rng, cuts)
		entries[0].Start = start
		reps = append(reps, replacement{Start: start, End: end, Entries: entries})
		next = append(append(next, w.model[done:lo]...), entries...)
		done = hi
	}
	next = append(next, w.model[done:]...)
	w.model = next
	e := w.edit()
	w.rng.Shuffle(len(reps), func(i, j int) { reps[i], reps[j] = reps[j], reps[i] })
	for _, r := range reps {
		require.NoError(w.t, e.replace(r))
	}
	w.apply(e)
	require.LessOrEqual(w.t, w.root.mapBytes(), w.fill.root)
}

// TestI1Tiling: in every epoch the ranges cover all keys, once; and lookups and
// contents are the oracle's, over thousands of random edits of trees of all
// heights.
func TestI1Tiling(t *testing.T) {
	rng := seed.New(t)
	highest := uint8(0)
	for i := range 20 {
		w := newWorld(t, rng, []int{1, 10, 100, 600}[rng.IntN(4)])
		if i == 0 {
			w = newWorldOf(t, rng, 600, keystyle.Styles["decimal"], fill{entries: 4, children: 4, keys: 4000, root: 300})
			highest = w.root.Height
		}
		w.check()
		for range 30 {
			w.replaceSome()
			highest = max(highest, w.root.Height)
			var cuts [][]byte
			for range 10 {
				if c := w.model[rng.IntN(len(w.model))].Start; len(c) > 0 {
					cuts = append(cuts, c)
				}
			}
			for _, k := range keystyle.Probes(rng, w.style, cuts) {
				got := w.blobs.find(t, w.root, func(c *mapcodec.Cuts) int { return c.Find(k) })
				require.True(t, sameEntry(w.model.find(k), got), "Find(%q)", k)
				got = w.blobs.find(t, w.root, func(c *mapcodec.Cuts) int { return c.FindBefore(k) })
				require.True(t, sameEntry(w.model.findBefore(k), got), "FindBefore(%q)", k)
			}
			got := w.blobs.find(t, w.root, func(c *mapcodec.Cuts) int { return c.FindBefore(nil) })
			require.True(t, sameEntry(w.model.findBefore(nil), got))
		}
	}
	require.GreaterOrEqual(t, highest, uint8(3), "the trees were too low to prove much")
}

// TestRangesOfAPart: iteration over a part of the map yields what overlaps it.
func TestRangesOfAPart(t *testing.T) {
	rng := seed.New(t)
	for range 200 {
		w := newWorld(t, rng, 1+rng.IntN(80))
		all := w.blobs.ranges(t, w.root)
		from, to := w.style(rng), w.style(rng)
		if rng.IntN(3) == 0 {
			from = nil
		}
		if rng.IntN(3) == 0 || string(to) < string(from) {
			to = nil
		}
		want := slices.DeleteFunc(slices.Clone(all), func(r Range) bool {
			return len(r.End) > 0 && string(r.End) <= string(from) || len(to) > 0 && string(r.Start) >= string(to)
		})
		var got []Range
		for r, err := range Ranges(w.root, w.blobs.read, from, to) {
			require.NoError(t, err)
			got = append(got, r)
		}
		require.Equal(t, len(want), len(got))
		for i := range got {
			require.True(t, sameEntry(want[i].Entry, got[i].Entry))
			require.Equal(t, string(want[i].End), string(got[i].End))
		}
	}
}

// TestBadReplacementsAreRefused: none of them may make a map.
func TestBadReplacementsAreRefused(t *testing.T) {
	rng := seed.New(t)
	for _, cuts := range []int{3, 500} {
		w := newWorld(t, rng, cuts)
		w.style = keystyle.Styles["decimal"]
		c := func(n int) []byte { return fmt.Appendf(nil, "%020d", n*10) }
		w.model = sorted{{Partition: store.PartitionID{1}}}
		for i := range cuts {
			w.model = append(w.model, Entry{Start: c(i + 1), Partition: store.PartitionID(id16(rng))})
		}
		change, err := newMap(testBucket, 0, slices.Clone(w.model), stampOf(rng), w.fill)
		require.NoError(t, err)
		w.root = w.blobs.apply(t, change)

		at := func(starts ...[]byte) (out []Entry) {
			for _, s := range starts {
				out = append(out, Entry{Start: s, Partition: store.PartitionID{2}})
			}
			return out
		}
		no := []byte("00000000000000000015")
		for name, reps := range map[string][]replacement{
			"starts at no cut":    {{Start: no, End: c(2), Entries: at(no)}},
			"ends at no cut":      {{Start: c(1), End: no, Entries: at(c(1))}},
			"empty":               {{Start: c(1), End: c(2)}},
			"begins elsewhere":    {{Start: c(1), End: c(3), Entries: at(c(2))}},
			"passes its end":      {{Start: c(1), End: c(2), Entries: at(c(1), c(2))}},
			"does not ascend":     {{Start: c(1), End: c(2), Entries: at(c(1), c(1))}},
			"overlap":             {{Start: c(1), End: c(3), Entries: at(c(1))}, {Start: c(2), End: c(3), Entries: at(c(2))}},
			"overlap, open ended": {{Start: c(1), Entries: at(c(1))}, {Start: c(2), End: c(3), Entries: at(c(2))}},
			"too long a cut": {{Start: c(1), End: c(2),
				Entries: at(c(1), append(c(1), make([]byte, store.MaxKeyBytes)...))}},
		} {
			e := w.edit()
			for _, r := range reps {
				err = e.replace(r)
			}
			if err == nil {
				_, err = e.Change()
			}
			require.Equal(t, store.InvalidArgument, store.KindOf(err), "%s: %v", name, err)
			_, err = e.Change()
			require.Error(t, err, name)
		}
	}
}

// TestLongCuts: the root stays small however long the cuts are, with the fill
// that real maps have.
func TestLongCuts(t *testing.T) {
	rng := seed.New(t)
	for _, c := range []struct{ length, cuts int }{{1024, 1200}, {store.MaxKeyBytes, 60}} {
		var entries []Entry
		for i := range c.cuts {
			key := make([]byte, c.length)
			copy(key[c.length-8:], fmt.Sprintf("%08d", i))
			entries = append(entries, Entry{Start: key, Partition: store.PartitionID(id16(rng))})
		}
		entries[0].Start = nil
		b := blobs{}
		change, err := New(testBucket, 0, entries, stampOf(rng))
		require.NoError(t, err)
		root := b.apply(t, change)
		require.Empty(t, Validate(root, b.read))
		t.Logf(
			"%d cuts of %d bytes: height %d, %d nodes, root of %d bytes", c.cuts, c.length, root.Height, len(b),
			len(encodeRoot(root, nil)),
		)
		for range 8 {
			i := 1 + rng.IntN(len(entries)-2)
			e := newEdit(root, stampOf(rng), b.read)
			require.NoError(
				t,
				e.replace(
					replacement{
						Start: entries[i].Start, End: entries[i+1].Start,
						Entries: []Entry{{Start: entries[i].Start, Partition: store.PartitionID(id16(rng))}},
					},
				),
			)
			change, err := e.Change()
			require.NoError(t, err)
			root = b.apply(t, change)
			require.Empty(t, Validate(root, b.read))
			require.LessOrEqual(t, len(change.Nodes), int(root.Height)+1)
		}
		// And back to one range, which is a root and nothing else.
		e := newEdit(root, stampOf(rng), b.read)
		require.NoError(t, e.replace(replacement{Entries: []Entry{{Partition: store.PartitionID(id16(rng))}}}))
		change, err = e.Change()
		require.NoError(t, err)
		root = b.apply(t, change)
		require.Zero(t, root.Height)
		require.Empty(t, change.Nodes)
		require.Empty(t, Validate(root, b.read))
	}
}

// TestMillionRangesSwapRewritesOnePath: whatever one change does in one place of
// a map of a million ranges, it writes the root, the segment and the index node
// above it, and a cold lookup reads as much.
func TestMillionRangesSwapRewritesOnePath(t *testing.T) {
	if testing.Short() {
		t.Skip("a million ranges")
	}
	rng := seed.New(t)
	const n = 1_000_000
	entries := make([]Entry, n)
	for i := range entries {
		entries[i].Partition = store.PartitionID(id16(rng))
		entries[i].Created = testNow
		if i > 0 {
			entries[i].Start = strconv.AppendInt([]byte("tenant-000042/photos/2024-08/"),
				int64(1e10+i*1700+rng.IntN(1700)), 10)
		}
	}
	b := blobs{}
	change, err := New(testBucket, 0, entries, stampOf(rng))
	require.NoError(t, err)
	root := b.apply(t, change)
	_, heights := b.reachable(t, root)
	size := 0
	for _, blob := range b {
		size += len(blob)
	}
	t.Logf(
		"%d segments, %d index nodes, %d bytes a range, root of %d bytes", heights[0], heights[1], size/n,
		len(encodeRoot(root, nil)),
	)
	require.Equal(t, uint8(2), root.Height, "a cold lookup reads the root, an index node and a segment")

	for range 30 {
		i := 1 + rng.IntN(n-2)
		start, end := entries[i].Start, entries[i+1].Start
		e := newEdit(root, stampOf(rng), b.read)
		batch, err := e.Begin(
			Move{
				Start: start, End: end,
				Parts: []Part{{Start: start}, {Start: append(slices.Clone(start), 'x'), To: store.PartitionID(id16(rng))}},
			},
		)
		require.NoError(t, err)
		change, err := e.Change()
		require.NoError(t, err)
		requireOnePath(t, b, root, change, start, end)
		root = b.apply(t, change)
		for range 3 {
			e = newEdit(root, stampOf(rng), b.read)
			require.NoError(t, e.Advance(batch))
			change, err = e.Change()
			require.NoError(t, err)
			require.Empty(t, change.Nodes, "a phase rewrites the root only")
			root = b.apply(t, change)
		}
		e = newEdit(root, stampOf(rng), b.read)
		require.NoError(t, e.Settle(batch, store.Bounds{Start: start, End: end}))
		change, err = e.Change()
		require.NoError(t, err)
		requireOnePath(t, b, root, change, start, end)
		root = b.apply(t, change)
		e = newEdit(root, stampOf(rng), b.read)
		require.NoError(t, e.Swept(batch))
		change, err = e.Change()
		require.NoError(t, err)
		require.Empty(t, change.Nodes)
		root = b.apply(t, change)
	}
	require.Equal(t, uint64(n+30), root.Ranges)
}

// requireOnePath: the old nodes that overlap [start, end) are replaced, and no
// others; each by one or, where it was full, two.
func requireOnePath(t *testing.T, old blobs, r *Root, c Change, start, end []byte) {
	t.Helper()
	want, written := map[byte]int{}, map[byte]int{}
	w := walker{from: start, to: end}
	var down func(children []Child, height uint8, last []byte)
	down = func(children []Child, height uint8, last []byte) {
		for i, c := range children {
			childEnd := last
			if i+1 < len(children) {
				childEnd = children[i+1].Start
			}
			if !w.overlaps(c.Start, childEnd) {
				continue
			}
			want[old[c.Node][2]]++
			if height > 0 {
				below, _, err := Reader(old.read).children(r, c, height)
				require.NoError(t, err)
				down(below, height-1, childEnd)
			}
		}
	}
	down(r.Children, r.Height-1, nil)
	gone := map[byte]int{}
	for _, id := range c.Replaced {
		gone[old[id][2]]++
	}
	require.Equal(t, want, gone)
	for _, n := range c.Nodes {
		written[n.Blob[2]]++
	}
	require.LessOrEqual(t, written[mapcodec.KindSegment], want[mapcodec.KindSegment]+1)
	require.LessOrEqual(t, written[mapcodec.KindIndex], want[mapcodec.KindIndex]+1)
}
