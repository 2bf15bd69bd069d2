package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Read returns a copy of the record with the given key in table t, or fails with NotFound. The consistency level makes
// no difference, since a store in memory has only one copy of the data.
func (s *memory) Read(ctx context.Context, t store.Table, key []byte, _ store.Level) (r store.Record, err error) {
	err = s.read(ctx, "read "+t.String(), storekit.CheckRegister(t, key), func() error {
		stored, ok := s.registers[t].Get(string(key))
		if !ok {
			return store.Errorf(store.NotFound, "there is no such record")
		}
		r = cloneRecord(stored)
		return nil
	})
	return r, err
}

// Swap replaces the record with the given key in table t by next if the record is at the version old, and fails with
// Conflict at another version. A replaced root is kept for History. The outcome is always known: after an error nothing
// has changed.
func (s *memory) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return s.write(ctx, "swap "+t.String(), storekit.CheckRecord(t, key, old, next), func() error {
		present, _ := s.registers[t].Get(string(key))
		if present.Version != old {
			return store.Errorf(store.Conflict, "the record is at epoch %d", present.Epoch)
		}
		s.registers[t].Set(string(key), cloneRecord(next))
		if t == store.Roots && old.Epoch > 0 {
			id := store.BucketID(key)
			s.history[id] = append(s.history[id], present)
		}
		return nil
	})
}

func (s *memory) Scan(ctx context.Context, t store.Table, after []byte, limit int) (keys [][]byte, err error) {
	err = s.read(ctx, "scan "+t.String(), cmp.Or(storekit.CheckLimit(limit), storekit.CheckTable(t)), func() error {
		scan(s.registers[t], string(after), limit, func(key string, _ store.Record) bool {
			keys = append(keys, []byte(key))
			return true
		})
		return nil
	})
	return keys, err
}

func (s *memory) History(
	ctx context.Context, id store.BucketID, before uint64, limit int,
) (replaced []store.Record, err error) {
	err = s.read(ctx, "history", storekit.CheckLimit(limit), func() error {
		for _, r := range slices.Backward(s.history[id]) {
			if len(replaced) == limit {
				break
			}
			if before == 0 || r.Epoch < before {
				replaced = append(replaced, cloneRecord(r))
			}
		}
		return nil
	})
	return replaced, err
}

func (s *memory) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	return s.write(ctx, "forget", nil, func() error {
		s.history[id] = slices.DeleteFunc(s.history[id], func(r store.Record) bool { return r.Epoch < before })
		return nil
	})
}

func (s *memory) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	return s.write(ctx, "write node", storekit.CheckNode(blob), func() error {
		m, ok := s.nodes[b]
		if !ok {
			m = &btree.Map[string, []byte]{}
			s.nodes[b] = m
		}
		m.Set(string(id[:]), bytes.Clone(blob))
		return nil
	})
}

func (s *memory) Node(ctx context.Context, b store.BucketID, id store.NodeID) (blob []byte, err error) {
	err = s.read(ctx, "node", nil, func() error {
		if m, ok := s.nodes[b]; ok {
			if stored, ok := m.Get(string(id[:])); ok {
				blob = bytes.Clone(stored)
				return nil
			}
		}
		return store.Errorf(store.NotFound, "there is no node %s in bucket %s", id, b)
	})
	return blob, err
}

func (s *memory) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	return s.write(ctx, "delete node", nil, func() error {
		if m, ok := s.nodes[b]; ok {
			m.Delete(string(id[:]))
		}
		return nil
	})
}

func (s *memory) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) (ids []store.NodeID, err error) {
	err = s.read(ctx, "scan nodes", storekit.CheckLimit(limit), func() error {
		if m, ok := s.nodes[b]; ok {
			scan(m, string(after[:]), limit, func(key string, _ []byte) bool {
				ids = append(ids, store.NodeID([]byte(key)))
				return true
			})
		}
		return nil
	})
	return ids, err
}

func cloneRecord(r store.Record) store.Record {
	r.Blob = bytes.Clone(r.Blob)
	return r
}
