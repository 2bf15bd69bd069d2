package partmap

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// EncodeRoot returns the record to store for the root r of a bucket's map. It fails with InvalidArgument if the root
// exceeds a limit: 64 batches of moves, 16 KiB of settings, and 4 KiB for all else.
func EncodeRoot(r *Root) (store.Record, error) {
	if len(r.Batches) > mapcodec.MaxBatches {
		return store.Record{}, invalid("a root with %d batches in flight: at most %d", len(r.Batches), mapcodec.MaxBatches)
	}
	if n := r.mapBytes(); n > mapcodec.MaxRootBytes {
		return store.Record{}, invalid("a root of %d bytes: at most %d", n, mapcodec.MaxRootBytes)
	}
	if n := len(r.Settings); n > mapcodec.MaxSettingsBytes {
		return store.Record{}, invalid("settings of %d bytes: at most %d", n, mapcodec.MaxSettingsBytes)
	}
	return store.Record{Version: r.Version(), Blob: encodeRoot(r, r.Batches)}, nil
}

// mapBytes returns the size in bytes of the encoded root, without its batches of moves and its settings.
// mapcodec.MaxRootBytes bounds this size.
func (r *Root) mapBytes() int {
	bare := *r
	bare.Settings = nil
	return len(encodeRoot(&bare, nil))
}

// encodeRoot returns the encoded root r, with the given batches of moves in place of those of r.
func encodeRoot(r *Root, batches []Batch) []byte {
	b := mapcodec.NewBlob(mapcodec.KindRoot)
	switch n := len(r.Settings); {
	case n > mapcodec.ShortSettings:
		b[len(b)-1] = mapcodec.LongRootVersion
		b = append(binary.AppendUvarint(b, uint64(n)), r.Settings...)
	case n > 0:
		b[len(b)-1] = mapcodec.RootVersion
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
		return mapcodec.Seal(appendChildren(b, r.Children))
	}
	return mapcodec.Seal(appendEntries(b, r.Entries))
}

// DecodeRoot returns the root of the map of bucket b from its stored record. It fails with
//   - Corrupt if the record is damaged;
//   - Unavailable if a newer evenkeel has written the record, in a format that this program does not know;
//   - Unavailable, too, if the content names another bucket or another version than the record: the read was torn, and
//     the caller should read again.
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

// decodeRoot returns the root from its encoded bytes. It fails with Corrupt, or with ErrNewerVersion of package
// mapcodec.
func decodeRoot(blob []byte) (*Root, error) {
	r := mapcodec.Unseal(mapcodec.KindRoot, blob)
	root := &Root{}
	least, n := 0, uint64(0)
	switch r.Version {
	case mapcodec.RootVersion:
		least, n = 1, uint64(r.Byte())
	case mapcodec.LongRootVersion:
		least, n = mapcodec.ShortSettings+1, r.Uvarint()
	}
	if n > mapcodec.MaxSettingsBytes {
		r.Fail("it claims settings of %d bytes", n)
	}
	if root.Settings = bytes.Clone(r.Bytes(n)); len(root.Settings) == 0 {
		root.Settings = nil
	}
	if r.Err == nil && len(root.Settings) < least {
		r.Fail("it has version %d, but settings of %d bytes", r.Version, len(root.Settings))
	}
	root.Bucket, root.Epoch, root.Token, root.State = r.ID(), r.Uvarint(), r.ID(), State(r.Byte())
	if r.Err == nil && (root.State < Open || root.State > Deleted) {
		r.Fail("its state is %d", root.State)
	}
	clock := r.Uvarint()
	if clock > 1<<32-1 {
		r.Fail("its map clock is number %d", clock)
	}
	root.Clock = uint32(clock)
	root.ChangedAt, root.Ranges = r.Varint(), r.Uvarint()
	root.Batches = batches(&r)
	if root.Height = r.Byte(); root.Height > mapcodec.MaxHeight {
		r.Fail("its height is %d", root.Height)
	}
	var cuts mapcodec.Cuts
	if root.Height == 0 {
		list := r.Entries()
		cuts, root.Entries = list.Cuts, entriesOf(&list)
	} else {
		var nodes []store.NodeID
		cuts, nodes = r.Children()
		root.Children = make([]Child, len(nodes))
		for i := range nodes {
			root.Children[i] = Child{Start: cuts.At(i), Node: nodes[i]}
		}
	}
	if err := r.Done(cuts.Len()); err != nil {
		return nil, err
	}
	if len(cuts.At(0)) > 0 {
		return nil, store.Errorf(store.Corrupt, "its first range does not begin at the lowest key")
	}
	return root, nil
}

// batches returns the batches of moves in an encoded root. They must be in the order of their IDs, and at most 64.
func batches(r *mapcodec.Decoder) []Batch {
	n := r.Uvarint()
	if n > mapcodec.MaxBatches {
		r.Fail("it claims %d batches", n)
	}
	if r.Err != nil || n == 0 {
		return nil
	}
	out := make([]Batch, 0, n)
	for range n {
		b := Batch{ID: r.Uvarint(), Phase: Phase(r.Byte()), Ranges: r.Uvarint()}
		if r.Err == nil && int(b.Phase) >= phases {
			r.Fail("batch %d is in %s", b.ID, b.Phase)
		}
		if r.Err == nil && (b.ID == 0 || len(out) > 0 && b.ID <= out[len(out)-1].ID) {
			r.Fail("its batches are out of order")
		}
		out = append(out, b)
	}
	return out
}
