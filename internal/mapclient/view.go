package mapclient

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
)

// view is the root of a map, prepared for fast lookups. It has the start keys of the root's entries or children, and
// links to the cached nodes below the root.
type view struct {
	root  *partmap.Root
	cuts  *mapcodec.Cuts
	links links // a link for each child of the root
}

func newView(r *partmap.Root) *view {
	n, at := len(r.Children), func(i int) []byte { return r.Children[i].Start }
	if r.Height == 0 {
		n, at = len(r.Entries), func(i int) []byte { return r.Entries[i].Start }
	}
	return &view{root: r, cuts: new(mapcodec.NewCuts(n, at)), links: make(links, len(r.Children))}
}

// size returns an estimate, in bytes, of the memory of a root that is prepared for lookups. The start keys of its
// ranges count twice: they are in the root, and in a list for lookups.
func (v *view) size() int64 {
	const fixed, perEntry, perChild, perBatch = 240, 96, 40, 24
	r := v.root
	lines := len(r.Entries)*perEntry + len(r.Children)*(perChild+linkBytes) + len(r.Batches)*perBatch
	return fixed + 2*v.cuts.Bytes() + int64(lines)
}

// find sets *into to the range of the map that contains key. If before is true, it sets *into to the range that
// contains the keys directly below key. It reads nodes of the map that are not in the cache n from the store.
func (v *view) find(ctx context.Context, n *nodes, key []byte, before bool, into *partmap.Range) error {
	r := v.root
	i := search(v.cuts, key, before)
	end := v.cuts.End(i, nil)
	if r.Height == 0 {
		into.Entry = r.Entries[i]
		complete(into, r, end)
		return nil
	}
	parent, links := v.cuts, v.links
	nodeID := r.Children[i].Node
	for height := r.Height - 1; ; height-- {
		got := links.get(i)
		n.cache.count(got != nil)
		if got == nil {
			var err error
			child := partmap.Child{Start: parent.At(i), Node: nodeID}
			if got, err = n.child(ctx, r, child, height, &links[i]); err != nil {
				return err
			}
		}
		if height == 0 {
			s := &got.segment
			i = search(&s.Cuts, key, before)
			into.Start, into.Partition, into.To, into.Batch, into.PinUntil, into.Created = s.Entry(i)
			complete(into, r, s.End(i, end))
			return nil
		}
		x := &got.index
		i = search(&x.Cuts, key, before)
		end = x.End(i, end)
		parent, links, nodeID = &x.Cuts, got.links, x.Node(i)
	}
}

// complete sets what a range has besides its entry: the end, and the phase of its move in the map of root r.
func complete(rg *partmap.Range, r *partmap.Root, end []byte) {
	rg.End = end
	rg.Phase, rg.SweepPending = r.BatchOf(rg.Batch)
}

// search returns the index of the range or node that contains key. The list c has the start keys of neighbouring ranges
// or nodes. If before is true, the result is the range or node that contains the keys directly below key.
func search(c *mapcodec.Cuts, key []byte, before bool) int {
	// A valid map always has a result: the root begins at the lowest key, and the first start of every node has been
	// checked against its parent.
	if before {
		return max(c.FindBefore(key), 0)
	}
	return max(c.Find(key), 0)
}
