package partmap

import (
	"encoding/binary"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// fill has the maximum sizes of the nodes of a map. A node above a maximum is split evenly. A node is small if it has
// less than a quarter of both maxima: the number of items and the bytes of their keys. When a change touches a small
// node, the node is joined with a neighbour.
type fill struct {
	entries  int // number of entries of a segment
	children int // number of children of an index node
	keys     int // bytes of all keys of a node together; three of the longest keys fit
	root     int // bytes of the encoded root, without its batches and settings
}

// standard has the maximum sizes of the nodes and the root of a map. Only tests use smaller nodes.
var standard = fill{entries: 1000, children: 256, keys: 256 << 10, root: mapcodec.MaxRootBytes}

// sparseDivisor is 4. A node of a map is joined with a neighbour if it has less than a fourth of the maximum number of
// items, and less than a fourth of the maximum number of bytes of keys.
const sparseDivisor = 4

// writer encodes the new nodes of a change of a map, gives each node a fresh id, and collects the nodes.
type writer struct {
	fill
	header  mapcodec.Header
	newNode func() store.NodeID
	nodes   []Node
	// contents has the items of each new node before encoding, by the id of the node.
	contents map[store.NodeID]content
}

// content holds the items of a node of a map: either entries, or references to the nodes below (children). The other
// field is nil.
type content struct {
	entries  []Entry
	children []Child
}

// wrote adds the new node n to the nodes of the change. c has the items of the node.
func (w *writer) wrote(n Node, c content) {
	if w.contents == nil {
		w.contents = map[store.NodeID]content{}
	}
	w.nodes, w.contents[n.ID] = append(w.nodes, n), c
}

// segment makes one new segment with the given entries, and returns the reference to it.
func (w *writer) segment(entries []Entry) Child {
	h := w.header
	h.ID = w.newNode()
	w.wrote(encodeSegment(h, entries), content{entries: entries})
	return Child{Start: entries[0].Start, Node: h.ID}
}

// index makes one new index node of the given height with the given children, and returns the reference to it.
func (w *writer) index(height uint8, children []Child) Child {
	h := w.header
	h.ID = w.newNode()
	w.wrote(encodeIndex(h, height, children), content{children: children})
	return Child{Start: children[0].Start, Node: h.ID}
}

// segments divides the entries among new segments, and returns the references to these.
func (w *writer) segments(entries []Entry) []Child {
	return pack(entries, w.entries, w.keys, entryStart, w.segment)
}

// indexes divides the children among new index nodes of the given height, and returns the references to these.
func (w *writer) indexes(height uint8, children []Child) []Child {
	return pack(children, w.children, w.keys, childStart, func(c []Child) Child { return w.index(height, c) })
}

// encodeSegment returns the encoded segment with the header h and the given entries.
func encodeSegment(h mapcodec.Header, entries []Entry) Node {
	b := h.Append(mapcodec.NewBlob(mapcodec.KindSegment))
	return Node{ID: h.ID, Blob: mapcodec.Seal(appendEntries(b, entries))}
}

// encodeIndex returns the encoded index node with the header h, the given height and the given children.
func encodeIndex(h mapcodec.Header, height uint8, children []Child) Node {
	b := append(h.Append(mapcodec.NewBlob(mapcodec.KindIndex)), height)
	return Node{ID: h.ID, Blob: mapcodec.Seal(appendChildren(b, children))}
}

// appendEntries appends the encoded entries of a map to b, after their number and the total length of their keys. It
// returns the extended slice.
func appendEntries(b []byte, entries []Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	b = binary.AppendUvarint(b, uint64(keyBytes(entries, entryStart)))
	var before []byte
	for i := range entries {
		e := &entries[i]
		b = mapcodec.AppendEntry(b, before, e.Start, e.Partition, e.To, e.Batch, e.PinUntil, e.Created)
		before = e.Start
	}
	return b
}

// appendChildren appends the encoded references to nodes of a map to b, after their number and the total length of
// their keys. It returns the extended slice.
func appendChildren(b []byte, children []Child) []byte {
	b = binary.AppendUvarint(b, uint64(len(children)))
	b = binary.AppendUvarint(b, uint64(keyBytes(children, childStart)))
	var before []byte
	for i := range children {
		b = append(mapcodec.AppendKey(b, before, children[i].Start), children[i].Node[:]...)
		before = children[i].Start
	}
	return b
}

func entryStart(e *Entry) []byte { return e.Start }
func childStart(c *Child) []byte { return c.Start }

// endOf returns the key at which the i-th of the items ends. The items are neighbouring entries or nodes of a map. Each
// item ends where the next item starts; the end of the last item is the parameter end. The function start returns the
// start of an item.
func endOf[T any](items []T, i int, start func(*T) []byte, end []byte) []byte {
	if i+1 < len(items) {
		return start(&items[i+1])
	}
	return end
}

// fit makes the root r of a map small enough to be stored. While the root is too large, fit moves its content to new
// nodes, which form another level below the root.
func (w *writer) fit(r *Root) {
	// The loop ends: a node holds at least three of the longest keys, so each level has fewer nodes than the level
	// below. A single node always fits in the root, since its start is empty.
	for !r.fits(w.root) {
		if r.Height == 0 {
			r.Children, r.Entries = w.segments(r.Entries), nil
		} else {
			r.Children = w.indexes(r.Height, r.Children)
		}
		r.Height++
	}
}

// fits reports whether the encoded root of a map takes at most `most` bytes. The batches of moves and the settings of
// the bucket do not count.
func (r *Root) fits(most int) bool {
	return len(r.Entries) <= most/mapcodec.MinEntryBytes && r.mapBytes() <= most
}

// keyBytes returns the total length in bytes of the start keys of all items. The items are entries or nodes of a map.
// The function start returns the start of an item.
func keyBytes[T any](items []T, start func(*T) []byte) (n int) {
	for i := range items {
		n += len(start(&items[i]))
	}
	return n
}

// pack divides items into groups of about equal size and writes each group to a new node of the map. It returns the
// references to the new nodes. A group has at most `most` items, and the start keys of its items have at most `keys`
// bytes together.
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

// sparse reports whether a node of a map with the given items is so small that it should be joined with a neighbour.
// The parameter most is the maximum number of items of a node, and keys is the maximum number of bytes of their start
// keys. A small node has less than a quarter of both.
func sparse[T any](items []T, most, keys int, start func(*T) []byte) bool {
	return len(items) < most/sparseDivisor && keyBytes(items, start) < keys/sparseDivisor
}
