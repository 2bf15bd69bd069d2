package partmap

import "github.com/evenkeel/evenkeel/store"

// fill has the maximum sizes of the nodes of a map. A node above a maximum is split evenly. A node is small if
// it has less than a quarter of both maxima: the number of items and the bytes of their keys. When a change
// touches a small node, the node is joined with a neighbour.
type fill struct {
	entries  int // number of entries of a segment
	children int // number of children of an index node
	keys     int // bytes of the cuts of one node together; three of the longest cuts fit
	root     int // bytes of the encoded root, without its batches and settings
}

// standard has the maximum sizes of the nodes and the root of every map. Only tests use smaller nodes.
var standard = fill{entries: 1000, children: 256, keys: 256 << 10, root: MaxRootBytes}

// sparseDivisor says when a node of the map is too small and should be joined with a neighbour. Such a node is
// below 1/sparseDivisor of both maxima: the number of items and the bytes of their keys.
const sparseDivisor = 4

// writer encodes the new nodes of one change of a map, and collects them. It gives each node a fresh id.
type writer struct {
	fill
	header  nodeHeader
	newNode func() store.NodeID
	nodes   []Node
	// contents are the items of the new nodes before encoding, by node id.
	contents map[store.NodeID]content
}

// content holds the items of a node of the map: entries, or references to the nodes below (children). The other
// field is nil.
type content struct {
	entries  []Entry
	children []Child
}

// wrote adds the new node n, with its content, to the nodes of the change.
func (w *writer) wrote(n Node, c content) {
	if w.contents == nil {
		w.contents = map[store.NodeID]content{}
	}
	w.nodes, w.contents[n.ID] = append(w.nodes, n), c
}

func (w *writer) segment(entries []Entry) Child {
	h := w.header
	h.ID = w.newNode()
	w.wrote(encodeSegment(h, entries), content{entries: entries})
	return Child{Start: entries[0].Start, Node: h.ID}
}

func (w *writer) index(height uint8, children []Child) Child {
	h := w.header
	h.ID = w.newNode()
	w.wrote(encodeIndex(h, height, children), content{children: children})
	return Child{Start: children[0].Start, Node: h.ID}
}

func (w *writer) segments(entries []Entry) []Child {
	return pack(entries, w.entries, w.keys, entryStart, w.segment)
}

func (w *writer) indexes(height uint8, children []Child) []Child {
	return pack(children, w.children, w.keys, childStart, func(c []Child) Child { return w.index(height, c) })
}

func entryStart(e *Entry) []byte { return e.Start }
func childStart(c *Child) []byte { return c.Start }

// endOf returns the end of the i-th of neighbouring items (entries or nodes of a map). An item ends at the
// start of the next item; the last one ends at the given end.
func endOf[T any](items []T, i int, start func(*T) []byte, end []byte) []byte {
	if i+1 < len(items) {
		return start(&items[i+1])
	}
	return end
}

// fit moves the content of a root that is too large to new nodes below the root, level by level, until the root
// is small enough. The loop ends: a node holds at least three of the longest keys, so each level has fewer
// nodes. A single node always fits in the root, since its start is empty.
func (w *writer) fit(r *Root) {
	for !r.fits(w.root) {
		if r.Height == 0 {
			r.Children, r.Entries = w.segments(r.Entries), nil
		} else {
			r.Children = w.indexes(r.Height, r.Children)
		}
		r.Height++
	}
}

// fits reports whether the encoded root takes at most the given number of bytes. The batches of moves and the
// settings of the bucket do not count.
func (r *Root) fits(most int) bool {
	return len(r.Entries) <= most/minEntryBytes && r.mapBytes() <= most
}

// keyBytes returns the total length in bytes of the starts of all items. The function start returns the start
// of an item.
func keyBytes[T any](items []T, start func(*T) []byte) (n int) {
	for i := range items {
		n += len(start(&items[i]))
	}
	return n
}

// pack divides items into runs of about equal size, and writes each run to a new node. It returns the
// references to the new nodes. A run has at most `most` items, whose starts have at most `keys` bytes together.
func pack[T any](items []T, most, keys int, start func(*T) []byte, write func([]T) Child) (out []Child) {
	left := keyBytes(items, start)
	for len(items) > 0 {
		nodes := max((len(items)+most-1)/most, (left+keys-1)/keys, 1)
		count, size := (len(items)+nodes-1)/nodes, left/nodes
		n, took := 0, 0
		for n < len(items) && n < most {
			k := len(start(&items[n]))
			full := n >= count && took >= size
			if n > 0 && (full || took+k > keys) {
				break
			}
			took += k
			n++
		}
		out = append(out, write(items[:n]))
		items, left = items[n:], left-took
	}
	return out
}

// sparse reports whether a node with these items is so small that it should be joined with a neighbour. most
// and keys are the maximum number of items and of bytes of their starts; a small node is below a quarter of
// both.
func sparse[T any](items []T, most, keys int, start func(*T) []byte) bool {
	return len(items) < most/sparseDivisor && keyBytes(items, start) < keys/sparseDivisor
}
