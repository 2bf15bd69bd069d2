package partmap

import (
	"encoding/binary"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// Node is an index node or a segment as a store keeps it.
type Node struct {
	ID   store.NodeID
	Blob []byte
}

// nodeHeader begins every node. With bucket and id a blob in the wrong place is detected. By
// the epoch that the node was written for a collector decides whether a pending swap may
// still name it.
type nodeHeader struct {
	Bucket store.BucketID
	ID     store.NodeID
	Epoch  uint64
}

func (h *nodeHeader) append(b []byte) []byte {
	b = append(append(b, h.Bucket[:]...), h.ID[:]...)
	return binary.AppendUvarint(b, h.Epoch)
}

func (r *reader) nodeHeader(b store.BucketID, id store.NodeID) nodeHeader {
	h := nodeHeader{Bucket: r.id(), ID: r.id(), Epoch: r.uvarint()}
	if r.err == nil && h.Bucket != b {
		r.fail("it belongs to bucket %s", h.Bucket)
	}
	if r.err == nil && h.ID != id {
		r.fail("it says that it is node %s", h.ID)
	}
	return h
}

// NodeEpoch returns the epoch that a node of any kind was written for.
func NodeEpoch(b store.BucketID, n Node) (uint64, error) {
	kind := byte(kindSegment)
	if len(n.Blob) > 2 && n.Blob[2] == kindIndex {
		kind = kindIndex
	}
	r := unseal(kind, n.Blob)
	h := r.nodeHeader(b, n.ID)
	return h.Epoch, store.Wrap(nodeOp("node", b, n.ID), r.err)
}

// Segment is an immutable run of consecutive entries, decoded for lookups. Its Cuts are the
// starts of its ranges.
type Segment struct {
	Cuts
	wheres
	nodeHeader
}

// Entry returns the i-th entry. Its Start shares memory with the segment.
func (s *Segment) Entry(i int) (e Entry) {
	s.entry(i, s.At(i), &e)
	return e
}

// Range sets into, which must be zero, to the i-th range in a map with root r, where the
// segment ends at end. It saves copies, since a Range is large.
func (s *Segment) Range(r *Root, i int, end []byte, into *Range) {
	s.entry(i, s.At(i), &into.Entry)
	into.End = s.End(i, end)
	into.Phase, into.SweepPending = r.BatchOf(into.Batch)
}

// Bytes returns the memory of the segment.
func (s *Segment) Bytes() int64 {
	return s.Cuts.Bytes() + s.wheres.bytes() + segmentBytes
}

// Sizes in memory on a 64-bit machine, for Bytes.
const (
	commonWhereBytes = 32
	movedWhereBytes  = 32
	segmentBytes     = 256
	indexBytes       = 240
)

func encodeSegment(h nodeHeader, entries []Entry) Node {
	b := h.append(newBlob(kindSegment))
	return Node{ID: h.ID, Blob: seal(appendEntries(b, entries))}
}

// DecodeSegment decodes a segment of a bucket. It fails with Corrupt, naming both, or with
// ErrNewerVersion.
func DecodeSegment(b store.BucketID, n Node) (*Segment, error) {
	r := unseal(kindSegment, n.Blob)
	s := &Segment{nodeHeader: r.nodeHeader(b, n.ID)}
	s.Cuts, s.wheres = r.entries()
	if err := r.done(s.Len()); err != nil {
		return nil, store.Wrap(nodeOp("segment", b, n.ID), err)
	}
	s.index()
	return s, nil
}

// entries reads a counted list of entries.
func (r *reader) entries() (Cuts, wheres) {
	n := r.count(minEntryBytes)
	cuts := r.keysOf(n)
	w := wheres{common: make([]commonWhere, 0, n)}
	for range n {
		r.key(&cuts)
		r.where(&w)
	}
	w.moved = slices.Clip(slices.Clone(w.moved))
	return cuts, w
}

// Index is an immutable index node, decoded for lookups. Its Cuts are the starts of the nodes
// below.
type Index struct {
	Cuts
	nodeHeader
	// Height is 1 over segments, 2 over index nodes of height 1, and so on.
	Height uint8
	nodes  []store.NodeID
}

// Child returns the i-th child. Its Start shares memory with the index node.
func (x *Index) Child(i int) Child { return Child{Start: x.At(i), Node: x.nodes[i]} }

// Node returns the id of the i-th child.
func (x *Index) Node(i int) store.NodeID { return x.nodes[i] }

// Bytes returns the memory of the index node.
func (x *Index) Bytes() int64 { return x.Cuts.Bytes() + allocated(cap(x.nodes)*16) + indexBytes }

func encodeIndex(h nodeHeader, height uint8, children []Child) Node {
	b := append(h.append(newBlob(kindIndex)), height)
	return Node{ID: h.ID, Blob: seal(appendChildren(b, children))}
}

// DecodeIndex decodes an index node of a bucket. It fails with Corrupt, naming both, or with
// ErrNewerVersion.
func DecodeIndex(b store.BucketID, n Node) (*Index, error) {
	r := unseal(kindIndex, n.Blob)
	x := &Index{nodeHeader: r.nodeHeader(b, n.ID), Height: r.byte()}
	if r.err == nil && (x.Height == 0 || x.Height >= maxHeight) {
		r.fail("an index node of height %d", x.Height)
	}
	x.Cuts, x.nodes = r.children()
	if err := r.done(len(x.nodes)); err != nil {
		return nil, store.Wrap(nodeOp("index node", b, n.ID), err)
	}
	x.index()
	return x, nil
}

func appendChildren(b []byte, children []Child) []byte {
	b = binary.AppendUvarint(b, uint64(len(children)))
	b = appendKeysOf(b, len(children), func(i int) []byte { return children[i].Start })
	var before []byte
	for i := range children {
		b = append(appendKey(b, before, children[i].Start), children[i].Node[:]...)
		before = children[i].Start
	}
	return b
}

// children reads a counted list of children.
func (r *reader) children() (Cuts, []store.NodeID) {
	n := r.count(minChildBytes)
	cuts := r.keysOf(n)
	nodes := make([]store.NodeID, 0, n)
	for range n {
		r.key(&cuts)
		id := store.NodeID(r.id())
		if r.err != nil {
			return Cuts{}, nil
		}
		nodes = append(nodes, id)
	}
	return cuts, nodes
}
