package mapclient

import (
	"context"

	"github.com/evenkeel/evenkeel/partmap"
)

// view is the root of a map, prepared for fast lookups. It has the start keys of the root's entries or children, and
// links to the cached nodes below the root.
type view struct {
	root  *partmap.Root
	cuts  *partmap.Cuts
	links links // a link for each child of the root
}

func newView(r *partmap.Root) *view {
	return &view{root: r, cuts: r.Cuts(), links: make(links, len(r.Children))}
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
		*into = r.Range(r.Entries[i], end)
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
			s.Range(r, search(&s.Cuts, key, before), end, into)
			return nil
		}
		x := &got.index
		i = search(&x.Cuts, key, before)
		end = x.End(i, end)
		parent, links, nodeID = &x.Cuts, got.links, x.Node(i)
	}
}

// search returns the index of the range or node that contains key. The list c has the start keys of neighbouring ranges
// or nodes. If before is true, the result is the range or node that contains the keys directly below key.
func search(c *partmap.Cuts, key []byte, before bool) int {
	// A valid map always has a result: the root begins at the lowest key, and the first start of every node has been
	// checked against its parent.
	if before {
		return max(c.FindBefore(key), 0)
	}
	return max(c.Find(key), 0)
}
