package mapcodec

import (
	"encoding/binary"

	"github.com/evenkeel/evenkeel/store"
)

// Header is the beginning of every encoded node of a bucket's map. Bucket and ID are those of the node: they show
// whether bytes were stored under a wrong bucket or id. Epoch is the epoch of the root for which the node was written:
// the number of changes of the map. The collector of unused nodes compares epochs, since a swap of a root that is still
// under way may name a new node.
type Header struct {
	Bucket store.BucketID
	ID     store.NodeID
	Epoch  uint64
}

// Append appends the encoded header to b, and returns the extended slice.
func (h *Header) Append(b []byte) []byte {
	b = append(append(b, h.Bucket[:]...), h.ID[:]...)
	return binary.AppendUvarint(b, h.Epoch)
}

// header decodes the header of a node. It records a Corrupt error if the header does not have the bucket b and the id.
func (r *Decoder) header(b store.BucketID, id store.NodeID) Header {
	h := Header{Bucket: r.ID(), ID: r.ID(), Epoch: r.Uvarint()}
	if r.Err == nil && h.Bucket != b {
		r.Fail("it belongs to bucket %s", h.Bucket)
	}
	if r.Err == nil && h.ID != id {
		r.Fail("it says that it is node %s", h.ID)
	}
	return h
}

// NodeEpoch returns the epoch of the root for which the node id in the map of bucket b was written. The node may be an
// index node or a segment; blob has its bytes. NodeEpoch fails with Corrupt if the bytes are damaged, or belong to
// another bucket or node. It fails with ErrNewerVersion if this program does not know their format.
func NodeEpoch(b store.BucketID, id store.NodeID, blob []byte) (uint64, error) {
	kind := byte(KindSegment)
	if len(blob) > 2 && blob[2] == KindIndex {
		kind = KindIndex
	}
	r := Unseal(kind, blob)
	h := r.header(b, id)
	return h.Epoch, store.Wrap(NodeOp("node", b, id), r.Err)
}

// Segment is a decoded node that holds consecutive entries of a bucket's map, for lookups. An entry says in which
// partition a range of keys lies. A Segment is immutable.
type Segment struct {
	Entries
	Header
}

// Bytes returns an estimate of the memory, in bytes, that the segment takes. A cache uses the estimate to bound its
// size.
func (s *Segment) Bytes() int64 {
	return s.Cuts.Bytes() + allocated(cap(s.common)*CommonWhereBytes) + allocated(cap(s.moved)*MovedWhereBytes) +
		SegmentBytes
}

// The sizes, in bytes, of the structs that hold decoded nodes, on a 64-bit machine. The methods named Bytes use these
// sizes for their estimates of memory.
const (
	CommonWhereBytes = 32
	MovedWhereBytes  = 32
	SegmentBytes     = 256
	IndexBytes       = 240
)

// DecodeSegment returns the decoded segment with this id, a node with entries of the map of bucket b. It fails with
// Corrupt if the bytes are damaged, or belong to another bucket or node. It fails with ErrNewerVersion if this program
// does not know their format. The error names the bucket and the node.
func DecodeSegment(b store.BucketID, id store.NodeID, blob []byte) (*Segment, error) {
	r := Unseal(KindSegment, blob)
	s := &Segment{Header: r.header(b, id)}
	s.Entries = r.Entries()
	if err := r.Done(s.Len()); err != nil {
		return nil, store.Wrap(NodeOp("segment", b, id), err)
	}
	s.index()
	return s, nil
}

// Index is a decoded index node of a bucket's map: a node that names the nodes directly below it, its children. The
// embedded Cuts are the lowest keys (the starts) of the children. An Index is immutable.
type Index struct {
	Cuts
	Header
	// Height is 1 if the children are segments, 2 if they are index nodes of height 1, and so on.
	Height uint8
	nodes  []store.NodeID
}

// Node returns the id of the i-th child, a node directly below this index node of a map. i counts from 0.
func (x *Index) Node(i int) store.NodeID { return x.nodes[i] }

// Bytes returns an estimate of the memory, in bytes, that the index node takes. A cache uses the estimate to bound its
// size.
func (x *Index) Bytes() int64 { return x.Cuts.Bytes() + allocated(cap(x.nodes)*16) + IndexBytes }

// DecodeIndex returns the decoded index node with this id of the map of bucket b. It fails with Corrupt if the bytes
// are damaged, or belong to another bucket or node. It fails with ErrNewerVersion if this program does not know their
// format. The error names the bucket and the node.
func DecodeIndex(b store.BucketID, id store.NodeID, blob []byte) (*Index, error) {
	r := Unseal(KindIndex, blob)
	x := &Index{Header: r.header(b, id), Height: r.Byte()}
	if r.Err == nil && (x.Height == 0 || x.Height >= MaxHeight) {
		r.Fail("an index node of height %d", x.Height)
	}
	x.Cuts, x.nodes = r.Children()
	if err := r.Done(len(x.nodes)); err != nil {
		return nil, store.Wrap(NodeOp("index node", b, id), err)
	}
	x.index()
	return x, nil
}

// Check compares the segment with what its parent node says of it. The lowest key of the segment must be start. The
// segment must not be newer than epoch, the epoch of the root. Otherwise Check returns a Corrupt error.
func (s *Segment) Check(start []byte, epoch uint64) error {
	return s.misplaced(s.At(0), start, 0, 0, epoch)
}

// Check compares the index node with what its parent node says of it. The lowest key of the index node must be start,
// and its height must be the given height. It must not be newer than epoch, the epoch of the root. Otherwise Check
// returns a Corrupt error.
func (x *Index) Check(start []byte, height uint8, epoch uint64) error {
	return x.misplaced(x.At(0), start, x.Height, height, epoch)
}

// misplaced returns a Corrupt error if a node contradicts what its parent node says of it: its lowest key, its height,
// or the highest epoch that it may have.
func (h *Header) misplaced(start, wantStart []byte, height, wantHeight uint8, epoch uint64) error {
	switch {
	case string(start) != string(wantStart):
		return store.Errorf(store.Corrupt,
			"node %s of bucket %s begins at %q, its parent says %q", h.ID, h.Bucket, Clip(start), Clip(wantStart))
	case height != wantHeight:
		return store.Errorf(store.Corrupt,
			"node %s of bucket %s has height %d, its parent says %d", h.ID, h.Bucket, height, wantHeight)
	case h.Epoch > epoch:
		return store.Errorf(store.Corrupt,
			"node %s of bucket %s was written for epoch %d, its root is of epoch %d", h.ID, h.Bucket, h.Epoch, epoch)
	}
	return nil
}
