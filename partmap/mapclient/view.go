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
	const fixed, perEntry, perChild, perBatch = 512, 104, 40, 24
	r := v.root
	return fixed + 2*v.cuts.Bytes() + int64(len(r.Entries))*perEntry + int64(len(r.Children))*(perChild+linkBytes) + int64(len(r.Batches))*perBatch
}

// find walks from the root to the range that contains key, or with before to
// the one that contains the highest keys below key.
func (v *view) find(ctx context.Context, n *nodes, key []byte, before bool) (partmap.Range, error) {
	r := v.root
	cuts, l := v.cuts, v.links
	i := search(cuts, key, before)
	end := cuts.End(i, nil)
	if r.Height == 0 {
		return r.Range(r.Entries[i], end), nil
	}
	child := r.Children[i]
	for height := r.Height - 1; ; height-- {
		got := l.get(i)
		if got == nil {
			var err error
			if got, err = n.child(ctx, r, child, height, &l[i]); err != nil {
				return partmap.Range{}, err
			}
		}
		if got.segment != nil {
			s := got.segment
			i = search(&s.Cuts, key, before)
			return r.Range(s.Entry(i), s.End(i, end)), nil
		}
		x := got.index
		i = search(&x.Cuts, key, before)
		end = x.End(i, end)
		child, l = x.Child(i), got.links
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
