package partmap

import "github.com/evenkeel/evenkeel/store"

// fill has the maximum sizes of nodes. A node above a maximum is split evenly; one below a
// quarter of both maxima is joined with a neighbour when a change touches it.
type fill struct {
	entries  int // of a segment
	children int // of an index node
	keys     int // bytes of the cuts of one node together; three of the longest fit
	root     int // bytes of the encoded root, without its overlay
}

// standard is the fill of all maps; tests use smaller nodes.
var standard = fill{entries: 1000, children: 256, keys: 256 << 10, root: MaxRootBytes}

const sparseDivisor = 4

// writer makes the new nodes of one change.
type writer struct {
	fill
	header  nodeHeader
	newNode func() store.NodeID
	nodes   []Node
	// contents are the nodes before encoding.
	contents map[store.NodeID]content
}

// content is the entries or children of a node.
type content struct {
	entries  []Entry
	children []Child
}

// wrote adds a node.
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

// endOf returns the end of the i-th of some neighbours, of which the last ends at end.
func endOf[T any](items []T, i int, start func(*T) []byte, end []byte) []byte {
	if i+1 < len(items) {
		return start(&items[i+1])
	}
	return end
}

// fit moves the content of the root to new nodes below it until the root is small enough. It
// terminates: a node holds at least three of the longest cuts, and a single child always
// fits, since its start is empty.
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

// fits reports whether the encoded root, without its overlay, has at most that many bytes.
func (r *Root) fits(most int) bool {
	return len(r.Entries) <= most/minEntryBytes && r.mapBytes() <= most
}

// keyBytes returns the length of all starts together.
func keyBytes[T any](items []T, start func(*T) []byte) (n int) {
	for i := range items {
		n += len(start(&items[i]))
	}
	return n
}

// pack cuts items into runs of about equal size within the limits of a node and
// writes each.
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

// sparse reports whether a node with these items should be joined with a
// neighbour.
func sparse[T any](items []T, most, keys int, start func(*T) []byte) bool {
	return len(items) < most/sparseDivisor && keyBytes(items, start) < keys/sparseDivisor
}
