package partmap

import (
	"iter"

	"github.com/evenkeel/evenkeel/store"
)

// Reader is a function that returns the stored bytes of the node with the given id. The node belongs to the map of one
// particular bucket.
type Reader func(store.NodeID) ([]byte, error)

// children returns the references to other nodes that an index node of a map holds. The parameter c is the reference to
// the index node in its parent. The second result is the epoch of the root for which the node was written. If the node
// contradicts c, for instance in its lowest key, children returns an error. It then also returns the references, except
// if the height is wrong.
func (read Reader) children(r *Root, c Child, height uint8) ([]Child, uint64, error) {
	x, err := read.index(r.Bucket, c.Node)
	if err != nil {
		return nil, 0, err
	}
	if err = CheckIndex(r, c, height, x); x.Height != height {
		return nil, 0, err
	}
	out := make([]Child, x.Len())
	for i := range out {
		out[i] = x.Child(i)
	}
	return out, x.Epoch, err
}

// entries returns the entries of a segment, a node of a map. The parameter c is the reference to the segment in its
// parent node. The second result is the epoch of the root for which the segment was written. If the segment contradicts
// c, for instance in its lowest key, the entries are returned together with an error.
func (read Reader) entries(r *Root, c Child) ([]Entry, uint64, error) {
	s, err := read.segment(r.Bucket, c.Node)
	if err != nil {
		return nil, 0, err
	}
	out := make([]Entry, s.Len())
	for i := range out {
		out[i] = s.Entry(i)
	}
	return out, s.Epoch, CheckSegment(r, c, s)
}

func (read Reader) index(b store.BucketID, id store.NodeID) (*Index, error) {
	blob, err := read(id)
	if err != nil {
		return nil, store.Wrap(nodeOp("read index node", b, id), err)
	}
	return DecodeIndex(b, Node{ID: id, Blob: blob})
}

func (read Reader) segment(b store.BucketID, id store.NodeID) (*Segment, error) {
	blob, err := read(id)
	if err != nil {
		return nil, store.Wrap(nodeOp("read segment", b, id), err)
	}
	return DecodeSegment(b, Node{ID: id, Blob: blob})
}

// misplaced compares a node of the map of root r with c, the reference to the node in its parent. It returns a Corrupt
// error if
//   - the start or the height of the node differs from the reference, or
//   - the epoch of the node is above that of the root.
func misplaced(r *Root, c Child, h nodeHeader, start []byte, wantHeight, height uint8) error {
	switch {
	case string(start) != string(c.Start):
		return corrupt(
			"node %s of bucket %s begins at %q, its parent says %q", c.Node, r.Bucket, clip(start), clip(c.Start),
		)
	case height != wantHeight:
		return corrupt(
			"node %s of bucket %s has height %d, its parent says %d", c.Node, r.Bucket, height, wantHeight,
		)
	case h.Epoch > r.Epoch:
		return corrupt("node %s of bucket %s was written for epoch %d, its root is of epoch %d", c.Node, r.Bucket, h.Epoch, r.Epoch)
	}
	return nil
}

// CheckSegment compares the segment s with c, the reference to the segment in its parent node, in the map of root r. It
// returns nil if both agree. It returns a Corrupt error if the start differs, or if the segment is newer than the root.
func CheckSegment(r *Root, c Child, s *Segment) error {
	return misplaced(r, c, s.nodeHeader, s.At(0), 0, 0)
}

// CheckIndex compares the index node x with c, the reference to the node in its parent node, in the map of root r. It
// returns nil if both agree and x has the given height. It returns a Corrupt error if the start or the height differs,
// or if the node is newer than the root.
func CheckIndex(r *Root, c Child, height uint8, x *Index) error {
	return misplaced(r, c, x.nodeHeader, x.At(0), height, x.Height)
}

// Ranges iterates in order over the ranges of a bucket's map that have a key from `from` to below `to`. An empty `to`
// is plus infinity. r is the root of the map, and read returns its nodes. An error ends the iteration and comes with a
// zero Range.
func Ranges(r *Root, read Reader, from, to []byte) iter.Seq2[Range, error] {
	return func(yield func(Range, error) bool) {
		(&walker{root: r, read: read, from: from, to: to, yield: yield}).walk()
	}
}

// RangesSince iterates in order over the ranges of a bucket's map that changed at the given epoch or later. Unchanged
// ranges may come as well. Nodes that were written for an older epoch are skipped, with all nodes below them: a change
// writes anew each node on the path to a changed range. An error ends the iteration and comes with a zero Range.
func RangesSince(r *Root, read Reader, epoch uint64) iter.Seq2[Range, error] {
	return func(yield func(Range, error) bool) {
		(&walker{root: r, read: read, since: epoch, yield: yield}).walk()
	}
}

// Named returns the ids of all nodes of the map whose root is r: index nodes and segments. It reads only the index
// nodes, which name the segments. Stored nodes that are not named are not in use.
func Named(r *Root, read Reader) (map[store.NodeID]bool, error) {
	named := map[store.NodeID]bool{}
	var down func(children []Child, height uint8) error
	down = func(children []Child, height uint8) error {
		for _, c := range children {
			named[c.Node] = true
			if height == 0 {
				continue
			}
			below, _, err := read.children(r, c, height)
			if err == nil {
				err = down(below, height-1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return named, down(r.Children, r.Height-1)
}

// RangeBefore returns the range of a bucket's map that ends at key. A range must begin at key. The second result is
// false if key is the lowest key of all. r is the root of the map, and read returns its nodes.
func RangeBefore(r *Root, read Reader, key []byte) (Range, bool, error) {
	if len(key) == 0 {
		return Range{}, false, nil
	}
	i := max(r.Cuts().FindBefore(key), 0)
	if r.Height == 0 {
		return r.Range(r.Entries[i], key), true, nil
	}
	c := r.Children[i]
	for height := r.Height - 1; height > 0; height-- {
		x, err := read.index(r.Bucket, c.Node)
		if err == nil {
			err = CheckIndex(r, c, height, x)
		}
		if err != nil {
			return Range{}, false, err
		}
		c = x.Child(max(x.FindBefore(key), 0))
	}
	s, err := read.segment(r.Bucket, c.Node)
	if err == nil {
		err = CheckSegment(r, c, s)
	}
	if err != nil {
		return Range{}, false, err
	}
	return r.Range(s.Entry(max(s.FindBefore(key), 0)), key), true, nil
}

// walker iterates over the ranges of a bucket's map that overlap an interval of keys, in order. It goes from the root
// down to the segments, depth first.
type walker struct {
	root     *Root
	read     Reader
	from, to []byte
	since    uint64 // nodes written for older epochs are skipped
	yield    func(Range, error) bool
}

func (w *walker) walk() {
	if w.root.Height == 0 {
		w.segment(w.root.Entries, nil)
		return
	}
	w.nodes(w.root.Children, w.root.Height-1, nil)
}

// overlaps reports whether a key from start to below end lies in the interval of keys over which the walker iterates.
// An empty end is plus infinity.
func (w *walker) overlaps(start, end []byte) bool {
	return (len(end) == 0 || string(end) > string(w.from)) && (len(w.to) == 0 || string(start) < string(w.to))
}

func (w *walker) nodes(children []Child, height uint8, end []byte) bool {
	for i, c := range children {
		childEnd := endOf(children, i, childStart, end)
		if !w.overlaps(c.Start, childEnd) {
			continue
		}
		if height > 0 {
			below, epoch, err := w.read.children(w.root, c, height)
			if err != nil {
				w.yield(Range{}, err)
				return false
			}
			if epoch >= w.since && !w.nodes(below, height-1, childEnd) {
				return false
			}
			continue
		}
		entries, epoch, err := w.read.entries(w.root, c)
		if err != nil {
			w.yield(Range{}, err)
			return false
		}
		if epoch >= w.since && !w.segment(entries, childEnd) {
			return false
		}
	}
	return true
}

func (w *walker) segment(entries []Entry, end []byte) bool {
	for i, e := range entries {
		entryEnd := endOf(entries, i, entryStart, end)
		if w.overlaps(e.Start, entryEnd) && !w.yield(w.root.Range(e, entryEnd), nil) {
			return false
		}
	}
	return true
}
