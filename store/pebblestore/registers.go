package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// registerHeader is version(1) epoch(8) token(16).
const registerHeader = 1 + 8 + 16

// A register names one in errors.
type register struct {
	table store.Table
	key   []byte
}

func (r register) String() string { return fmt.Sprintf("%s/%x", r.table, r.key) }

// Read implements store.Registers. Every level is the newest state: there is
// one copy.
func (s *Store) Read(ctx context.Context, t store.Table, key []byte, _ store.Level) (store.Record, error) {
	if err := store.CheckRegister(t, key); err != nil {
		return store.Record{}, s.wrap("read", register{t, key}, err)
	}
	if err := s.enter(ctx); err != nil {
		return store.Record{}, s.wrap("read", register{t, key}, err)
	}
	defer s.leave()
	phys := registerKey(t, key)
	r, found, err := s.readRegister(phys)
	if err == nil && s.locks.stripe(phys).unsynced.Load() != 0 {
		err = s.settle(ctx)
	}
	if err == nil && !found {
		err = store.Errorf(store.NotFound, "there is no such record")
	}
	if err != nil {
		return store.Record{}, s.wrap("read", register{t, key}, err)
	}
	return r, nil
}

// Swap implements store.Registers. A swapped root and the record that it
// replaces in the history are one batch.
func (s *Store) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := store.CheckRecord(t, key, old, next); err != nil {
		return s.wrap("swap", register{t, key}, err)
	}
	if err := s.enterWrite(ctx, true, len(next.Blob)); err != nil {
		return s.wrap("swap", register{t, key}, err)
	}
	defer s.leave()
	phys := registerKey(t, key)
	m := s.lockStripe(phys)
	b := s.db.NewBatch()
	err := func() error {
		r, found, err := s.readRegister(phys)
		if err != nil {
			return err
		}
		if r.Version != old {
			return store.Errorf(
				store.Conflict, "the record is at epoch %d (%x), not %d (%x)", r.Epoch, r.Token, old.Epoch, old.Token,
			)
		}
		if t == store.Roots && found {
			_ = b.Set(historyKey(key, r.Epoch), encodeRecord(r), nil)
		}
		_ = b.Set(phys, encodeRecord(next), nil)
		return nil
	}()
	return s.wrap("swap", register{t, key}, s.finish(ctx, b, m, err))
}

// Scan implements store.Registers, in the order of the keys.
func (s *Store) Scan(ctx context.Context, t store.Table, last []byte, limit int) ([][]byte, error) {
	if err := errors.Join(store.CheckTable(t), store.CheckLimit(limit)); err != nil {
		return nil, s.wrap("scan", t, err)
	}
	if err := s.enter(ctx); err != nil {
		return nil, s.wrap("scan", t, err)
	}
	defer s.leave()
	prefix := registerKey(t, nil)
	lower := registerKey(t, last)
	if len(last) > 0 {
		lower = append(lower, 0)
	}
	var keys [][]byte
	err := s.each(ctx, lower, after(prefix), func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k[len(prefix):]))
		return len(keys) < limit, nil
	})
	return keys, s.wrap("scan", t, err)
}

// History implements store.Registers.
func (s *Store) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	if err := store.CheckLimit(limit); err != nil {
		return nil, s.wrap("history of", id, err)
	}
	if err := s.enter(ctx); err != nil {
		return nil, s.wrap("history of", id, err)
	}
	defer s.leave()
	prefix := append([]byte{tableHistory}, id[:]...)
	lower := prefix
	if before > 0 {
		lower = historyKey(id[:], before-1)
	}
	var rs []store.Record
	err := s.each(ctx, lower, after(prefix), func(k, v []byte) (bool, error) {
		r, ok := decodeRecord(v)
		if !ok {
			return false, store.Errorf(store.Corrupt, "the replaced record %x has no valid form", k)
		}
		rs = append(rs, r)
		return len(rs) < limit, nil
	})
	return rs, s.wrap("history of", id, err)
}

// Forget implements store.Registers.
func (s *Store) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	if err := s.enterWrite(ctx, true, 0); err != nil {
		return s.wrap("forget history of", id, err)
	}
	defer s.leave()
	if before == 0 {
		return nil
	}
	m := s.lockStripe(registerKey(store.Roots, id[:]))
	b := s.db.NewBatch()
	_ = b.DeleteRange(historyKey(id[:], before-1), after(append([]byte{tableHistory}, id[:]...)), nil)
	return s.wrap("forget history of", id, s.finish(ctx, b, m, nil))
}

// each visits stored keys and values in [lower, upper) until the visitor has
// enough, and makes sure that what it saw is synced.
func (s *Store) each(ctx context.Context, lower, upper []byte, visit func(k, v []byte) (bool, error)) error {
	err := func() (err error) {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, it.Close()) }()
		seen := 0
		for more := it.First(); more; more = it.Next() {
			if seen++; seen%checkEvery == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if on, err := visit(it.Key(), v); !on || err != nil {
				return err
			}
		}
		return it.Error()
	}()
	if err != nil {
		return err
	}
	return s.settleAll(ctx)
}

// lockStripe locks one stored key that belongs to no partition.
func (s *Store) lockStripe(phys []byte) *mark {
	m := &mark{locks: &s.locks}
	m.one[0] = s.locks.stripe(phys)
	m.stripes = m.one[:]
	m.one[0].Lock()
	return m
}

func (s *Store) readRegister(phys []byte) (store.Record, bool, error) {
	v, err := s.read(phys)
	if err != nil || v == nil {
		return store.Record{}, false, err
	}
	r, ok := decodeRecord(v)
	if !ok {
		return store.Record{}, false, store.Errorf(store.Corrupt, "the stored record has no valid form")
	}
	return r, true, nil
}

func encodeRecord(r store.Record) []byte {
	b := make([]byte, 0, registerHeader+len(r.Blob))
	b = append(b, 1)
	b = binary.BigEndian.AppendUint64(b, r.Epoch)
	b = append(b, r.Token[:]...)
	return append(b, r.Blob...)
}

// decodeRecord copies the blob out of b.
func decodeRecord(b []byte) (r store.Record, ok bool) {
	if len(b) < registerHeader || b[0] != 1 {
		return r, false
	}
	r.Epoch = binary.BigEndian.Uint64(b[1:])
	copy(r.Token[:], b[9:])
	r.Blob = slices.Clone(b[registerHeader:])
	return r, r.Epoch > 0
}
