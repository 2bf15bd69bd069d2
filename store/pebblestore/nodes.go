package pebblestore

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// WriteNode stores blob under the given id, as one node of the map of bucket b, and returns when the node is synced. It
// implements store.Nodes.
func (s *directory) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	if err := s.enterWrite(ctx, storekit.CheckNode(blob), moves, len(blob)); err != nil {
		return s.wrap("write node", storekit.NodeName{Bucket: b, ID: id}, err)
	}
	defer s.leave()
	phys := nodeKey(b, id)
	m := s.lockStripe(phys)
	batch := s.db.NewBatch()
	_ = batch.Set(phys, blob, nil)
	return s.wrap("write node", storekit.NodeName{Bucket: b, ID: id}, s.finish(ctx, batch, m, nil))
}

func (s *directory) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	if err := s.enter(ctx, nil); err != nil {
		return nil, s.wrap("read node", storekit.NodeName{Bucket: b, ID: id}, err)
	}
	defer s.leave()
	phys := nodeKey(b, id)
	v, err := s.read(phys)
	if err == nil && s.locks.stripe(phys).unsynced.Load() != 0 {
		err = s.settle(ctx)
	}
	if err == nil && v == nil {
		err = store.Errorf(store.NotFound, "there is no such node")
	}
	if err != nil {
		return nil, s.wrap("read node", storekit.NodeName{Bucket: b, ID: id}, err)
	}
	return v, nil
}

func (s *directory) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	if err := s.enterWrite(ctx, nil, frees, 0); err != nil {
		return s.wrap("delete node", storekit.NodeName{Bucket: b, ID: id}, err)
	}
	defer s.leave()
	phys := nodeKey(b, id)
	m := s.lockStripe(phys)
	batch := s.db.NewBatch()
	_ = batch.Delete(phys, nil)
	return s.wrap("delete node", storekit.NodeName{Bucket: b, ID: id}, s.finish(ctx, batch, m, nil))
}

func (s *directory) ScanNodes(
	ctx context.Context, b store.BucketID, last store.NodeID, limit int,
) ([]store.NodeID, error) {
	if err := s.enter(ctx, storekit.CheckLimit(limit)); err != nil {
		return nil, s.wrap("scan nodes of", b, err)
	}
	defer s.leave()
	prefix := nodePrefix(b)
	lower := prefix
	if last != (store.NodeID{}) {
		lower = append(nodeKey(b, last), 0)
	}
	var ids []store.NodeID
	err := s.scan(ctx, lower, store.PrefixEnd(prefix), func(k, _ []byte) (bool, error) {
		if len(k) != len(prefix)+16 {
			return false, store.Errorf(store.Corrupt, "a stored node's key has %d bytes", len(k))
		}
		ids = append(ids, store.NodeID(k[len(prefix):]))
		return len(ids) < limit, nil
	})
	return ids, s.wrap("scan nodes of", b, err)
}
