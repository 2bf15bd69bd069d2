package mapclient

import (
	"context"

	"github.com/evenkeel/evenkeel/partmap"
)

// view is a root made for lookup.
type view struct {
	root  *partmap.Root
	cuts  *partmap.Cuts
	links links // one per child of the root
}

func newView(r *partmap.Root) *view {
	return &view{root: r, cuts: r.Cuts(), links: make(links, len(r.Children))}
}

// size in memory, about: the cuts are there twice, in the root and made for
// lookup.
func (v *view) size() int64 {
	const fixed, perEntry, perChild, perBatch = 240, 96, 40, 24
	r := v.root
	return fixed + 2*v.cuts.Bytes() + int64(len(r.Entries))*perEntry + int64(len(r.Children))*(perChild+linkBytes) + int64(len(r.Batches))*perBatch
}

// find walks from the root to the range that contains key, or with before to
// the one that contains the highest keys below key, and sets into to it.
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

// search never fails within a map that holds together: a root begins at the
// lowest key, and child compared every node's first cut with its parent's.
func search(c *partmap.Cuts, key []byte, before bool) int {
	if before {
		return max(c.FindBefore(key), 0)
	}
	return max(c.Find(key), 0)
}
