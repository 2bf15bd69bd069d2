package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// recordVersion is the version of the encoding of a stored record (see store.Record). It is the first byte of every
// stored record.
const recordVersion = 1

// Read returns the record with the given key in table t, or fails with NotFound. The consistency level makes no
// difference, since the embedded store has only one copy. It implements store.Registers.
func (s *directory) Read(ctx context.Context, t store.Table, key []byte, _ store.Level) (store.Record, error) {
	if err := s.enter(ctx, storekit.CheckRegister(t, key)); err != nil {
		return store.Record{}, s.wrap("read", storekit.RegisterName{Table: t, Key: key}, err)
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
		return store.Record{}, s.wrap("read", storekit.RegisterName{Table: t, Key: key}, err)
	}
	return r, nil
}

// Swap replaces the record with the given key in table t by next if the record is at the version old, and fails with
// Conflict at another version. If the record is the root of a bucket's map, the replaced record is added to the history
// of the root in the same batch. It implements store.Registers.
func (s *directory) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := s.enterWrite(ctx, storekit.CheckRecord(t, key, old, next), frees, len(next.Blob)); err != nil {
		return s.wrap("swap", storekit.RegisterName{Table: t, Key: key}, err)
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
			_ = b.Set(historyKey(store.BucketID(key), r.Epoch), encodeRecord(r), nil)
		}
		_ = b.Set(phys, encodeRecord(next), nil)
		return nil
	}()
	return s.wrap("swap", storekit.RegisterName{Table: t, Key: key}, s.finish(ctx, b, m, err))
}

// Scan returns at most limit keys of the records in table t, in ascending order, that are above the key last (nil: from
// the first). It implements store.Registers.
func (s *directory) Scan(ctx context.Context, t store.Table, last []byte, limit int) ([][]byte, error) {
	if err := s.enter(ctx, cmp.Or(storekit.CheckTable(t), storekit.CheckLimit(limit))); err != nil {
		return nil, s.wrap("scan", t, err)
	}
	defer s.leave()
	prefix := registerKey(t, nil)
	lower := registerKey(t, last)
	if len(last) > 0 {
		lower = append(lower, 0)
	}
	var keys [][]byte
	err := s.scan(ctx, lower, store.PrefixEnd(prefix), func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k[len(prefix):]))
		return len(keys) < limit, nil
	})
	return keys, s.wrap("scan", t, err)
}

// History returns up to limit earlier records of the root of the bucket with the given id, newest first, with epochs
// below before (0: all epochs). It implements store.Registers.
func (s *directory) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	if err := s.enter(ctx, storekit.CheckLimit(limit)); err != nil {
		return nil, s.wrap("history of", id, err)
	}
	defer s.leave()
	prefix := historyPrefix(id)
	lower := prefix
	if before > 0 {
		lower = historyKey(id, before-1)
	}
	var rs []store.Record
	err := s.scan(ctx, lower, store.PrefixEnd(prefix), func(k, v []byte) (bool, error) {
		r, ok := decodeRecord(v)
		if !ok {
			return false, store.Errorf(store.Corrupt, "the replaced record %x has no valid form", k)
		}
		rs = append(rs, r)
		return len(rs) < limit, nil
	})
	return rs, s.wrap("history of", id, err)
}

// Forget deletes old records of the root of the bucket with the given id: those with epochs (versions) below before. It
// implements store.Registers.
func (s *directory) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	if err := s.enterWrite(ctx, nil, frees, 0); err != nil {
		return s.wrap("forget history of", id, err)
	}
	defer s.leave()
	if before == 0 {
		return nil
	}
	m := s.lockStripe(registerKey(store.Roots, id[:]))
	b := s.db.NewBatch()
	_ = b.DeleteRange(historyKey(id, before-1), store.PrefixEnd(historyPrefix(id)), nil)
	return s.wrap("forget history of", id, s.finish(ctx, b, m, nil))
}

// scan calls visit for the keys and values in Pebble from lower to upper (exclusive), in ascending order, until visit
// returns false. It then waits until everything that visit has seen is synced.
func (s *directory) scan(ctx context.Context, lower, upper []byte, visit func(k, v []byte) (bool, error)) error {
	if err := s.walk(ctx, lower, upper, visit); err != nil {
		return err
	}
	return s.settleAll(ctx)
}

// walk calls visit for the keys and values in Pebble from lower to upper (exclusive), in ascending order, until visit
// returns false. The key and the value are valid only during the call of visit, and may belong to writes that are not
// yet synced.
func (s *directory) walk(
	ctx context.Context, lower, upper []byte, visit func(k, v []byte) (bool, error),
) (err error) {
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
		if more, err := visit(it.Key(), v); !more || err != nil {
			return err
		}
	}
	return it.Error()
}

// lockStripe takes the lock of phys, a key in Pebble that belongs to no partition, such as the key of a register. The
// method unlock of the result releases the lock.
func (s *directory) lockStripe(phys []byte) *mark {
	m := &mark{locks: &s.locks}
	m.one[0] = s.locks.stripe(phys)
	m.stripes = m.one[:]
	m.one[0].Lock()
	return m
}

func (s *directory) readRegister(phys []byte) (store.Record, bool, error) {
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

func encodeRecord(r store.Record) []byte { return storekit.AppendRecord([]byte{recordVersion}, r) }

func decodeRecord(b []byte) (r store.Record, ok bool) {
	if len(b) == 0 || b[0] != recordVersion {
		return r, false
	}
	r, ok = storekit.DecodeRecord(b[1:])
	return r, ok && r.Epoch > 0
}
