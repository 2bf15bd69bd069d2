package partmap

import (
	"iter"
	"sort"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
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
	if err = x.Check(c.Start, height, r.Epoch); x.Height != height {
		return nil, 0, err
	}
	return childrenOf(x), x.Epoch, err
}

// entries returns the entries of a segment, a node of a map. The parameter c is the reference to the segment in its
// parent node. The second result is the epoch of the root for which the segment was written. If the segment contradicts
// c, for instance in its lowest key, the entries are returned together with an error.
func (read Reader) entries(r *Root, c Child) ([]Entry, uint64, error) {
	s, err := read.segment(r.Bucket, c.Node)
	if err != nil {
		return nil, 0, err
	}
	return entriesOf(&s.Entries), s.Epoch, s.Check(c.Start, r.Epoch)
}

// index reads and decodes the index node with this id of the map of bucket b.
func (read Reader) index(b store.BucketID, id store.NodeID) (*mapcodec.Index, error) {
	blob, err := read(id)
	if err != nil {
		return nil, store.Wrap(mapcodec.NodeOp("read index node", b, id), err)
	}
	return mapcodec.DecodeIndex(b, id, blob)
}

// segment reads and decodes the segment with this id of the map of bucket b.
func (read Reader) segment(b store.BucketID, id store.NodeID) (*mapcodec.Segment, error) {
	blob, err := read(id)
	if err != nil {
		return nil, store.Wrap(mapcodec.NodeOp("read segment", b, id), err)
	}
	return mapcodec.DecodeSegment(b, id, blob)
}

func childrenOf(x *mapcodec.Index) []Child {
	out := make([]Child, x.Len())
	for i := range out {
		out[i] = Child{Start: x.At(i), Node: x.Node(i)}
	}
	return out
}

func entriesOf(s *mapcodec.Entries) []Entry {
	out := make([]Entry, s.Len())
	for i := range out {
		out[i] = entryOf(s, i)
	}
	return out
}

func entryOf(s *mapcodec.Entries, i int) (e Entry) {
	e.Start, e.Partition, e.To, e.Batch, e.PinUntil, e.Created = s.Entry(i)
	return e
}

// Find returns the range of a bucket's map that contains the key, and so the partition of the key. r is the root of the
// map, and read returns its nodes. A program that finds many keys keeps nodes in a cache of its own behind read.
func Find(r *Root, read Reader, key []byte) (Range, error) {
	for rg, err := range Ranges(r, read, key, nil) {
		return rg, err
	}
	return Range{}, store.Errorf(store.Corrupt, "no range of bucket %s contains %q", r.Bucket, mapcodec.Clip(key))
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

// rangeBefore returns the range of a bucket's map that ends at key. A range must begin at key. The second result is
// false if key is the lowest key of all. r is the root of the map, and read returns its nodes.
func rangeBefore(r *Root, read Reader, key []byte) (Range, bool, error) {
	if len(key) == 0 {
		return Range{}, false, nil
	}
	if r.Height == 0 {
		return r.rangeOf(r.Entries[below(r.Entries, entryStart, key)], key), true, nil
	}
	c := r.Children[below(r.Children, childStart, key)]
	for height := r.Height - 1; height > 0; height-- {
		children, _, err := read.children(r, c, height)
		if err != nil {
			return Range{}, false, err
		}
		c = children[below(children, childStart, key)]
	}
	s, err := read.segment(r.Bucket, c.Node)
	if err == nil {
		err = s.Check(c.Start, r.Epoch)
	}
	if err != nil {
		return Range{}, false, err
	}
	return r.rangeOf(entryOf(&s.Entries, max(s.FindBefore(key), 0)), key), true, nil
}

// below returns the index of the last of the items that begins below key, or 0. The items are neighbouring entries or
// nodes of a map.
func below[T any](items []T, start func(*T) []byte, key []byte) int {
	n := sort.Search(len(items), func(i int) bool { return string(start(&items[i])) >= string(key) })
	return max(n-1, 0)
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

// walk calls yield with the ranges, until yield returns false or an error has been yielded.
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

// nodes walks through neighbouring nodes of the same height, and all nodes below them. It returns false if the walk is
// to end. end is the key at which the last of the children ends.
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

// segment yields the ranges of the given entries that overlap the walker's interval. It returns false if the walk is to
// end. end is the key at which the last entry ends.
func (w *walker) segment(entries []Entry, end []byte) bool {
	for i, e := range entries {
		entryEnd := endOf(entries, i, entryStart, end)
		if w.overlaps(e.Start, entryEnd) && !w.yield(w.root.rangeOf(e, entryEnd), nil) {
			return false
		}
	}
	return true
}
