package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// wideRows is the batch size from which a put locks its partition instead of
// its keys' stripes.
const wideRows = 17

// Put implements store.Rows.
func (s *Store) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if err := store.CheckRows(rows); err != nil || len(rows) == 0 {
		return s.wrap("put", p, err)
	}
	if err := s.enterWrite(ctx, false); err != nil {
		return s.wrap("put", p, err)
	}
	defer s.leave()
	if len(rows) >= wideRows {
		return s.wrap("put", p, s.putMany(ctx, p, rows))
	}
	return s.wrap("put", p, s.putFew(ctx, p, rows))
}

func (s *Store) putFew(ctx context.Context, p store.Partition, rows []store.Row) error {
	if len(rows) > 1 {
		rows = winners(rows)
	}
	phys := make([]byte, 0, len(rows)*prefixBytes+keyBytes(rows))
	var keys [wideRows][]byte
	for i := range rows {
		n := len(phys)
		phys = appendRowKey(phys, p, rows[i].Key)
		keys[i] = phys[n:]
	}
	m := s.lockKeys(p, keys[:len(rows)])
	b := s.db.NewBatch()
	err := func() error {
		for i := range rows {
			if err := s.putIfNewer(b, p, keys[i], &rows[i]); err != nil {
				return err
			}
		}
		return nil
	}()
	return s.finish(ctx, b, m, err)
}

// putIfNewer adds a row to the batch if it wins over the present one and over
// the removals. The caller holds its lock.
func (s *Store) putIfNewer(b *pebble.Batch, p store.Partition, phys []byte, row *store.Row) error {
	if s.removals.cover(p, row.Key) >= row.Timestamp {
		return nil
	}
	v, closer, err := s.db.Get(phys)
	if err == nil {
		present, ok := decodeStored(v)
		wins := ok && beats(row.Timestamp, row.Value, present)
		_ = closer.Close()
		if !ok {
			return corruptRow(p, row.Key)
		}
		if !wins {
			return nil
		}
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return err
	}
	setLive(b, phys, row)
	return nil
}

func setLive(b *pebble.Batch, phys []byte, row *store.Row) {
	op := b.SetDeferred(len(phys), rowHeader+len(row.Value))
	copy(op.Key, phys)
	putLive(op.Value, row.Timestamp, row.Value)
	_ = op.Finish() // fails only on indexed batches
}

// putMany compares with one iterator, in the order of the keys.
func (s *Store) putMany(ctx context.Context, p store.Partition, rows []store.Row) error {
	rows = winners(rows)
	m := s.lockPartition(p)
	b := s.db.NewBatchWithSize(keyBytes(rows) + valueBytes(rows) + len(rows)*(prefixBytes+rowHeader+8))
	return s.finish(ctx, b, m, s.putSorted(b, p, rows))
}

func (s *Store) putSorted(b *pebble.Batch, p store.Partition, rows []store.Row) (err error) {
	lower := rowKey(p, rows[0].Key)
	upper := append(rowKey(p, rows[len(rows)-1].Key), 0)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	phys := make([]byte, 0, 256)
	more := it.First()
	for i := range rows {
		row := &rows[i]
		phys = appendRowKey(phys[:0], p, row.Key)
		if more && string(it.Key()) < string(phys) {
			more = it.SeekGE(phys)
		}
		if !more {
			if err := it.Error(); err != nil {
				return err
			}
		}
		if s.removals.cover(p, row.Key) >= row.Timestamp {
			continue
		}
		if more && string(it.Key()) == string(phys) {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			present, ok := decodeStored(v)
			if !ok {
				return corruptRow(p, row.Key)
			}
			if !beats(row.Timestamp, row.Value, present) {
				continue
			}
		}
		setLive(b, phys, row)
	}
	return nil
}

// Delete implements store.Rows. It stores a tombstone unless the row is newer;
// also where nothing is, for the puts that come late, and where an older
// tombstone or a removal does already, so that the grace counts from now.
func (s *Store) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if err := errors.Join(store.CheckKey(key), store.CheckTimestamp(ts)); err != nil {
		return s.wrap("delete", p, err)
	}
	if err := s.enterWrite(ctx, true); err != nil {
		return s.wrap("delete", p, err)
	}
	defer s.leave()
	phys := rowKey(p, key)
	m := s.lockKeys(p, [][]byte{phys})
	b := s.db.NewBatch()
	return s.wrap("delete", p, s.finish(ctx, b, m, s.addTombstone(b, p, phys, ts)))
}

func (s *Store) addTombstone(b *pebble.Batch, p store.Partition, phys []byte, ts store.Timestamp) error {
	v, err := s.read(phys)
	if err != nil {
		return err
	}
	if v != nil {
		present, ok := decodeStored(v)
		if !ok {
			return corruptRow(p, phys[prefixBytes:])
		}
		if present.ts > ts {
			if present.kind == rowLive {
				return nil
			}
			ts = present.ts
		}
	}
	at := s.o.Now().UnixMicro()
	_ = b.Set(phys, tombstoneValue(ts, at), nil)
	_ = b.Set(queueKey(at, phys), nil, nil)
	return nil
}

// ComparePut implements store.ComparePutter.
func (s *Store) ComparePut(ctx context.Context, p store.Partition, want []byte, row store.Row) error {
	if err := store.CheckRows([]store.Row{row}); err != nil {
		return s.wrap("compare and put", p, err)
	}
	if err := s.enterWrite(ctx, false); err != nil {
		return s.wrap("compare and put", p, err)
	}
	defer s.leave()
	phys := rowKey(p, row.Key)
	m := s.lockKeys(p, [][]byte{phys})
	b := s.db.NewBatch()
	err := s.checkPresent(p, phys, want)
	if err == nil {
		err = s.putIfNewer(b, p, phys, &row)
	}
	return s.wrap("compare and put", p, s.finish(ctx, b, m, err))
}

func (s *Store) checkPresent(p store.Partition, phys, want []byte) error {
	v, err := s.read(phys)
	if err != nil {
		return err
	}
	var present stored
	if v != nil {
		var ok bool
		if present, ok = decodeStored(v); !ok {
			return corruptRow(p, phys[prefixBytes:])
		}
	}
	live := present.kind == rowLive
	if live != (want != nil) || string(present.cell) != string(want) {
		return store.Errorf(store.Conflict, "the row %q is not as expected", phys[prefixBytes:])
	}
	return nil
}

// Get implements store.Rows.
func (s *Store) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Row{}, false, s.wrap("get", p, err)
	}
	if err := s.enter(ctx); err != nil {
		return store.Row{}, false, s.wrap("get", p, err)
	}
	defer s.leave()
	row, found, err := s.get(ctx, p, key)
	return row, found, s.wrap("get", p, err)
}

func (s *Store) get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	var short [256]byte
	phys := appendRowKey(short[:0], p, key)
	v, closer, err := s.db.Get(phys)
	var r stored
	switch {
	case errors.Is(err, pebble.ErrNotFound):
	case err != nil:
		return store.Row{}, false, err
	default:
		defer closer.Close()
		var ok bool
		if r, ok = decodeStored(v); !ok {
			return store.Row{}, false, corruptRow(p, key)
		}
	}
	if s.locks.stripe(phys).unsynced.Load() != 0 || s.locks.partition(p).wide.Load() != 0 {
		if err := s.settle(ctx); err != nil {
			return store.Row{}, false, err
		}
	}
	if r.kind != rowLive {
		return store.Row{}, false, nil
	}
	both := make([]byte, len(key)+len(r.cell))
	copy(both, key)
	copy(both[len(key):], r.cell)
	return store.Row{Key: both[:len(key):len(key)], Value: both[len(key):], Timestamp: r.ts}, true, nil
}

// lockKeys locks a partition shared and the stripes of its keys.
func (s *Store) lockKeys(p store.Partition, phys [][]byte) *mark {
	m := &mark{locks: &s.locks, partition: s.locks.partition(p)}
	m.partition.RLock()
	if len(phys) == 1 {
		m.one[0] = s.locks.stripe(phys[0])
		m.stripes = m.one[:]
	} else {
		var index [wideRows]int
		n := 0
		for _, k := range phys {
			index[n] = s.locks.index(k)
			n++
		}
		slices.Sort(index[:n])
		for _, i := range slices.Compact(index[:n]) {
			m.stripes = append(m.stripes, &s.locks.stripes[i])
		}
	}
	for _, t := range m.stripes {
		t.Lock()
	}
	return m
}

// lockPartition locks a partition alone.
func (s *Store) lockPartition(p store.Partition) *mark {
	m := &mark{locks: &s.locks, partition: s.locks.partition(p), wide: true}
	m.partition.Lock()
	return m
}

// unlock releases what lockKeys or lockPartition took.
func (m *mark) unlock() {
	for _, t := range m.stripes {
		t.Unlock()
	}
	switch {
	case m.partition == nil:
	case m.wide:
		m.partition.Unlock()
	default:
		m.partition.RUnlock()
	}
}

// finish ends a write: it applies what the caller put into the batch, releases
// the locks and waits for the sync. With an error the batch is dropped. An empty
// batch means that what is stored already wins; the answer rests on that, so it
// has to be synced too.
func (s *Store) finish(ctx context.Context, b *pebble.Batch, m *mark, err error) error {
	if err != nil || b.Empty() {
		pending := m.pending()
		m.unlock()
		_ = b.Close()
		if err == nil && pending {
			return s.settle(ctx)
		}
		return err
	}
	err = s.commit(b, m)
	m.unlock()
	if err != nil {
		return err
	}
	return s.durable(ctx, m)
}

// pending reports whether anything under the lock is not yet synced.
func (m *mark) pending() bool {
	if m.partition != nil && m.partition.unsynced.Load() != 0 {
		return true
	}
	for _, t := range m.stripes {
		if t.unsynced.Load() != 0 {
			return true
		}
	}
	return false
}

// winners sorts rows by key and keeps, of those with one key, the one that wins.
func winners(rows []store.Row) []store.Row {
	byKey := func(a, b store.Row) int { return cmp.Compare(string(a.Key), string(b.Key)) }
	if !slices.IsSortedFunc(rows, byKey) {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, byKey)
	}
	distinct := true
	for i := 1; i < len(rows) && distinct; i++ {
		distinct = string(rows[i-1].Key) != string(rows[i].Key)
	}
	if distinct {
		return rows
	}
	kept := make([]store.Row, 0, len(rows))
	for _, r := range rows {
		if n := len(kept); n == 0 || string(kept[n-1].Key) != string(r.Key) {
			kept = append(kept, r)
		} else if beats(r.Timestamp, r.Value, stored{kind: rowLive, ts: kept[n-1].Timestamp, cell: kept[n-1].Value}) {
			kept[n-1] = r
		}
	}
	return kept
}

func keyBytes(rows []store.Row) (n int) {
	for i := range rows {
		n += len(rows[i].Key)
	}
	return n
}

func valueBytes(rows []store.Row) (n int) {
	for i := range rows {
		n += len(rows[i].Value)
	}
	return n
}

func corruptRow(p store.Partition, key []byte) error {
	return store.Errorf(store.Corrupt, "the row %q of %s has no valid form", key, p)
}
