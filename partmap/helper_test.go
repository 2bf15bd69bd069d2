package partmap

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

func id16(rng *rand.Rand) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], rng.Uint64()|1)
	return id
}

const testNow = 1_700_000_000

func stampOf(rng *rand.Rand) Stamp {
	return Stamp{
		Token: store.Token(id16(rng)), Now: time.Unix(testNow, 0),
		NewNode: func() store.NodeID { return store.NodeID(id16(rng)) },
	}
}

// blobs is a store of nodes.
type blobs map[store.NodeID][]byte

func (b blobs) read(id store.NodeID) ([]byte, error) {
	if blob, ok := b[id]; ok {
		return blob, nil
	}
	return nil, store.Errorf(store.NotFound, "no node %s", id)
}

// apply stores the nodes of a change and returns its root as a reader gets it.
func (b blobs) apply(t testing.TB, c Change) *Root {
	t.Helper()
	for _, n := range c.Nodes {
		_, taken := b[n.ID]
		require.False(t, taken)
		require.LessOrEqual(t, len(n.Blob), store.MaxNodeBytes)
		b[n.ID] = n.Blob
	}
	rec, err := EncodeRoot(c.Next)
	require.NoError(t, err)
	require.LessOrEqual(t, len(rec.Blob), mapcodec.MaxRootBytes+26*mapcodec.MaxBatches)
	r, err := DecodeRoot(c.Next.Bucket, rec)
	require.NoError(t, err)
	return r
}

// reachable lists the nodes that a root names, with how many are of each height.
func (b blobs) reachable(t testing.TB, r *Root) (ids map[store.NodeID]bool, heights map[uint8]int) {
	t.Helper()
	ids, heights = map[store.NodeID]bool{}, map[uint8]int{}
	var down func(children []Child, height uint8)
	down = func(children []Child, height uint8) {
		for _, c := range children {
			require.False(t, ids[c.Node], "a node is named twice")
			ids[c.Node] = true
			heights[height]++
			if height > 0 {
				below, _, err := Reader(b.read).children(r, c, height)
				require.NoError(t, err)
				down(below, height-1)
			}
		}
	}
	if r.Height > 0 {
		down(r.Children, r.Height-1)
	}
	return ids, heights
}

func (b blobs) ranges(t testing.TB, r *Root) (out []Range) {
	t.Helper()
	for x, err := range Ranges(r, b.read, nil, nil) {
		require.NoError(t, err)
		out = append(out, x)
	}
	return out
}

func (b blobs) entries(t testing.TB, r *Root) (out []Entry) {
	t.Helper()
	for _, x := range b.ranges(t, r) {
		out = append(out, x.Entry)
	}
	return out
}

// find looks a key up through the decoded forms, as the map client does.
func (b blobs) find(t testing.TB, r *Root, search func(*mapcodec.Cuts) int) Entry {
	t.Helper()
	n, at := len(r.Children), func(i int) []byte { return r.Children[i].Start }
	if r.Height == 0 {
		n, at = len(r.Entries), func(i int) []byte { return r.Entries[i].Start }
	}
	i := search(new(mapcodec.NewCuts(n, at)))
	if r.Height == 0 {
		return r.Entries[i]
	}
	c := r.Children[i]
	for h := r.Height - 1; h > 0; h-- {
		x, err := Reader(b.read).index(r.Bucket, c.Node)
		require.NoError(t, err)
		c.Node = x.Node(search(&x.Cuts))
	}
	s, err := Reader(b.read).segment(r.Bucket, c.Node)
	require.NoError(t, err)
	return entryOf(&s.Entries, search(&s.Cuts))
}

// someEntries makes settled entries, one at the lowest key and one at each cut.
func someEntries(rng *rand.Rand, cuts [][]byte) []Entry {
	entries := make([]Entry, 1+len(cuts))
	for i := range entries {
		e := &entries[i]
		if i > 0 {
			e.Start = cuts[i-1]
		}
		e.Partition = store.PartitionID(id16(rng))
		if rng.IntN(3) == 0 {
			e.PinUntil = testNow - 1000 + rng.Int64N(2000)
		}
		if rng.IntN(4) > 0 {
			e.Created = rng.Int64N(1 << 33)
		}
	}
	return entries
}

var testBucket = store.BucketID{1, 2, 3}

// small fills make deep trees of few entries.
func smallFill(rng *rand.Rand) fill {
	return fill{
		entries: 2 + rng.IntN(12), children: 2 + rng.IntN(6), keys: 200 + rng.IntN(800), root: 300 + rng.IntN(600),
	}
}
