package partmap

import (
	"encoding/binary"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// Node is an encoded node of the tree that is a bucket's map: its id and its bytes in the store. The node is either an
// index node, which names other nodes, or a segment, which says in which partitions keys lie.
type Node struct {
	ID   store.NodeID
	Blob []byte
}

// nodeHeader is the beginning of every encoded node of a bucket's map. Bucket and ID reveal bytes that were stored
// under a wrong id. Epoch is the epoch of the root for which the node was written. The collector of unused nodes
// compares epochs: a swap of a root that is still under way may name a new node.
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

// NodeEpoch returns the epoch of the root for which the node n in the map of bucket b was written. The node may be an
// index node or a segment. NodeEpoch fails with Corrupt if the bytes are damaged or belong to another bucket or node,
// and with ErrNewerVersion if this program does not know their format.
func NodeEpoch(b store.BucketID, n Node) (uint64, error) {
	kind := byte(kindSegment)
	if len(n.Blob) > 2 && n.Blob[2] == kindIndex {
		kind = kindIndex
	}
	r := unseal(kind, n.Blob)
	h := r.nodeHeader(b, n.ID)
	return h.Epoch, store.Wrap(nodeOp("node", b, n.ID), r.err)
}

// Segment is a decoded node that holds consecutive entries of a bucket's map, for lookups. An entry says in which
// partition a range of keys lies. A Segment is immutable. The embedded Cuts are the start keys of the entries.
type Segment struct {
	Cuts
	wheres
	nodeHeader
}

// Entry returns the i-th entry of the segment, counted from 0. The Start of the entry shares memory with the segment
// and is read-only.
func (s *Segment) Entry(i int) (e Entry) {
	s.entry(i, s.At(i), &e)
	return e
}

// Range sets *into to the i-th range of the segment. *into must be zero before the call. r is the root of the map,
// which has the phases of moves. The parameter end is the key at which the segment ends. Range has no result, because
// copies of a Range are costly.
func (s *Segment) Range(r *Root, i int, end []byte, into *Range) {
	s.entry(i, s.At(i), &into.Entry)
	into.End = s.End(i, end)
	into.Phase, into.SweepPending = r.BatchOf(into.Batch)
}

// Bytes returns an estimate of the memory, in bytes, that the segment takes. A cache uses the estimate to bound its
// size.
func (s *Segment) Bytes() int64 {
	return s.Cuts.Bytes() + s.wheres.bytes() + segmentBytes
}

// The sizes, in bytes, of the structs that hold decoded nodes, on a 64-bit machine. The methods named Bytes use these
// sizes for their estimates of memory.
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

// DecodeSegment returns the decoded segment n, a node with entries of the map of bucket b. It fails with Corrupt if the
// bytes are damaged or belong to another bucket or node, and with ErrNewerVersion if this program does not know their
// format. The error names the bucket and the node.
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

// entries reads a list of encoded entries of a map, which begins with the number of entries. It returns the start keys
// of the entries, and their other fields.
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

// Index is a decoded node of a bucket's map that names the nodes directly below it, its children. It is for lookups,
// and immutable. The embedded Cuts are the lowest keys (the starts) of the children.
type Index struct {
	Cuts
	nodeHeader
	// Height is 1 if the children are segments, 2 if they are index nodes of height 1, and so on.
	Height uint8
	nodes  []store.NodeID
}

// Child returns the reference to the i-th child, a node directly below this index node of a map. i counts from 0. The
// Start of the reference shares memory with the index node.
func (x *Index) Child(i int) Child { return Child{Start: x.At(i), Node: x.nodes[i]} }

// Node returns the id of the i-th child, a node directly below this index node of a map. i counts from 0.
func (x *Index) Node(i int) store.NodeID { return x.nodes[i] }

// Bytes returns an estimate of the memory, in bytes, that the index node takes. A cache uses the estimate to bound its
// size.
func (x *Index) Bytes() int64 { return x.Cuts.Bytes() + allocated(cap(x.nodes)*16) + indexBytes }

func encodeIndex(h nodeHeader, height uint8, children []Child) Node {
	b := append(h.append(newBlob(kindIndex)), height)
	return Node{ID: h.ID, Blob: seal(appendChildren(b, children))}
}

// DecodeIndex returns the decoded index node n of the map of bucket b. It fails with Corrupt if the bytes are damaged
// or belong to another bucket or node, and with ErrNewerVersion if this program does not know their format. The error
// names the bucket and the node.
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

// children reads a list of encoded references to nodes of a map, which begins with the number of references. It returns
// the lowest key (the start) and the id of each node.
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
