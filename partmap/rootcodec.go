package partmap

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/evenkeel/evenkeel/store"
)

// EncodeRoot returns the record to store for the root r of a bucket's map. It fails with InvalidArgument if the root
// exceeds MaxBatches, MaxRootBytes or MaxSettingsBytes.
func EncodeRoot(r *Root) (store.Record, error) {
	if len(r.Batches) > MaxBatches {
		return store.Record{}, invalid("a root with %d batches in flight: at most %d", len(r.Batches), MaxBatches)
	}
	if n := r.mapBytes(); n > MaxRootBytes {
		return store.Record{}, invalid("a root of %d bytes: at most %d", n, MaxRootBytes)
	}
	if n := len(r.Settings); n > MaxSettingsBytes {
		return store.Record{}, invalid("settings of %d bytes: at most %d", n, MaxSettingsBytes)
	}
	return store.Record{Version: r.Version(), Blob: encodeRoot(r, r.Batches)}, nil
}

// mapBytes returns the size in bytes of the encoded root, without its batches of moves and its settings. MaxRootBytes
// bounds this size.
func (r *Root) mapBytes() int {
	bare := *r
	bare.Settings = nil
	return len(encodeRoot(&bare, nil))
}

func encodeRoot(r *Root, batches []Batch) []byte {
	b := newBlob(kindRoot)
	switch n := len(r.Settings); {
	case n > shortSettings:
		b[len(b)-1] = longRootVersion
		b = append(binary.AppendUvarint(b, uint64(n)), r.Settings...)
	case n > 0:
		b[len(b)-1] = rootVersion
		b = append(append(b, byte(n)), r.Settings...)
	}
	b = append(b, r.Bucket[:]...)
	b = binary.AppendUvarint(b, r.Epoch)
	b = append(b, r.Token[:]...)
	b = append(b, byte(r.State))
	b = binary.AppendUvarint(b, uint64(r.Clock))
	b = binary.AppendVarint(b, r.ChangedAt)
	b = binary.AppendUvarint(b, r.Ranges)
	b = binary.AppendUvarint(b, uint64(len(batches)))
	for _, x := range batches {
		b = binary.AppendUvarint(b, x.ID)
		b = append(b, byte(x.Phase))
		b = binary.AppendUvarint(b, x.Ranges)
	}
	b = append(b, r.Height)
	if r.Height > 0 {
		return seal(appendChildren(b, r.Children))
	}
	return seal(appendEntries(b, r.Entries))
}

// DecodeRoot returns the root of the map of bucket b from its stored record. It fails with
//   - Corrupt if the record is damaged;
//   - ErrNewerVersion if this program does not know the format;
//   - Unavailable if the content names another bucket or another version than the record: the read was torn, and the
//     caller should read again.
func DecodeRoot(b store.BucketID, rec store.Record) (*Root, error) {
	r, err := decodeRoot(rec.Blob)
	if err == nil && r.Bucket != b {
		err = store.Errorf(store.Unavailable, "torn: the blob belongs to bucket %s", r.Bucket)
	}
	if err == nil && r.Version() != rec.Version {
		err = store.Errorf(store.Unavailable, "torn: the record is of epoch %d, the blob of epoch %d", rec.Epoch, r.Epoch)
	}
	if err != nil {
		return nil, store.Wrap(fmt.Sprintf("root of bucket %s", b), err)
	}
	return r, nil
}

func decodeRoot(blob []byte) (*Root, error) {
	r := unseal(kindRoot, blob)
	root := &Root{}
	least, n := 0, uint64(0)
	switch r.version {
	case rootVersion:
		least, n = 1, uint64(r.byte())
	case longRootVersion:
		least, n = shortSettings+1, r.uvarint()
	}
	if n > MaxSettingsBytes {
		r.fail("it claims settings of %d bytes", n)
	}
	if root.Settings = bytes.Clone(r.bytes(n)); len(root.Settings) == 0 {
		root.Settings = nil
	}
	if r.err == nil && len(root.Settings) < least {
		r.fail("it has version %d, but settings of %d bytes", r.version, len(root.Settings))
	}
	root.Bucket, root.Epoch, root.Token, root.State = r.id(), r.uvarint(), r.id(), State(r.byte())
	if r.err == nil && (root.State < Open || root.State > Deleted) {
		r.fail("its state is %d", root.State)
	}
	clock := r.uvarint()
	if clock > 1<<32-1 {
		r.fail("its map clock is number %d", clock)
	}
	root.Clock = uint32(clock)
	root.ChangedAt, root.Ranges = r.varint(), r.uvarint()
	root.Batches = r.batches()
	if root.Height = r.byte(); root.Height > maxHeight {
		r.fail("its height is %d", root.Height)
	}
	var cuts Cuts
	if root.Height == 0 {
		var w wheres
		cuts, w = r.entries()
		root.Entries = make([]Entry, cuts.Len())
		for i := range root.Entries {
			w.entry(i, cuts.At(i), &root.Entries[i])
		}
	} else {
		var nodes []store.NodeID
		cuts, nodes = r.children()
		root.Children = make([]Child, len(nodes))
		for i := range nodes {
			root.Children[i] = Child{Start: cuts.At(i), Node: nodes[i]}
		}
	}
	if err := r.done(cuts.Len()); err != nil {
		return nil, err
	}
	if len(cuts.At(0)) > 0 {
		return nil, corrupt("its first range does not begin at the lowest key")
	}
	return root, nil
}

func (r *reader) batches() []Batch {
	n := r.uvarint()
	if n > MaxBatches {
		r.fail("it claims %d batches", n)
	}
	if r.err != nil || n == 0 {
		return nil
	}
	out := make([]Batch, 0, n)
	for range n {
		b := Batch{ID: r.uvarint(), Phase: Phase(r.byte()), Ranges: r.uvarint()}
		if r.err == nil && int(b.Phase) >= phases {
			r.fail("batch %d is in %s", b.ID, b.Phase)
		}
		if r.err == nil && (b.ID == 0 || len(out) > 0 && b.ID <= out[len(out)-1].ID) {
			r.fail("its batches are out of order")
		}
		out = append(out, b)
	}
	return out
}
