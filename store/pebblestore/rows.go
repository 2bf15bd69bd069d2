package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// wideRows is the number of rows from which on a put takes the exclusive lock of its partition. A put of fewer rows
// takes the locks of its keys instead.
const wideRows = 17

// Put writes rows into the partition p as one batch, and returns when the batch is synced. A row with a lower timestamp
// than the stored row of its key has no effect. It implements store.Rows.
func (s *directory) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if err := s.enterPut(ctx, rows); err != nil {
		return s.wrap("put", p, err)
	}
	defer s.leave()
	if err := s.put(ctx, p, rows); err != nil { // s.wrap would allocate for p
		return s.wrap("put", p, err)
	}
	return nil
}

func (s *directory) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	if err := s.enterPut(ctx, rows); err != nil {
		ended()
		return s.wrap("put", p, err)
	}
	defer s.leave()
	if len(rows) == 0 {
		ended()
		return nil
	}
	u := s.newPut(p, rows, ended)
	if len(rows) < wideRows && s.wins(u) {
		s.grouper.add(u)
	} else {
		s.grouper.goAlone(u)
	}
	if err := s.awaitPut(ctx, u); err != nil {
		return s.wrap("put", p, err)
	}
	return nil
}

func (s *directory) enterPut(ctx context.Context, rows []store.Row) error {
	why := purposeOf(rows)
	if storekit.MakesRoom(ctx) {
		why = frees
	}
	return s.enterWrite(ctx, storekit.CheckRows(rows), why, keyBytes(rows)+valueBytes(rows))
}

// purposeOf returns the purpose of a put, which decides how full the disk may be for it. There are three purposes: rows
// of clients, copies by moves, and deletions. If the rows have several purposes, the result is the one that needs the
// most free space.
func purposeOf(rows []store.Row) purpose {
	why := frees
	for i := range rows {
		switch {
		case cells.IsMarker(rows[i].Value), cells.IsNote(rows[i].Value):
		case cells.IsCopied(rows[i].Value):
			why = moves
		default:
			return adds
		}
	}
	return why
}

func (s *directory) put(ctx context.Context, p store.Partition, rows []store.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if len(rows) < wideRows && !s.o.NoSync {
		u := s.newPut(p, rows, nil)
		if s.wins(u) {
			s.grouper.add(u)
			return s.awaitPut(ctx, u)
		}
		u.free()
	}
	return s.putNow(ctx, p, rows)
}

// putNow puts rows in a batch of their own, which they do not share with other calls of Put. It returns when the batch
// is synced.
func (s *directory) putNow(ctx context.Context, p store.Partition, rows []store.Row) error {
	if len(rows) < wideRows {
		return s.putFew(ctx, p, rows)
	}
	return s.putMany(ctx, p, rows)
}

func (s *directory) putFew(ctx context.Context, p store.Partition, rows []store.Row) error {
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
			if err := s.putIfNewer(b, p, keys[i], m.hashes[i], &rows[i]); err != nil {
				return err
			}
		}
		return nil
	}()
	return s.finish(ctx, b, m, err)
}

// putIfNewer adds a row to the batch if the row wins over the row that is stored under its key. It adds nothing if a
// removal (the deletion of an interval of keys) hides the row. phys is the key in Pebble, and hash is the hash of phys.
// The caller holds the lock of the key.
func (s *directory) putIfNewer(b *pebble.Batch, p store.Partition, phys []byte, hash uint64, row *store.Row) error {
	if s.removals.cover(p, row.Key) >= row.Timestamp {
		return nil
	}
	if !s.newest.below(hash, row.Timestamp) {
		wins, err := s.winsOverPresent(p, phys, row)
		if err != nil || !wins {
			return err
		}
	}
	if err := s.reserve(row.Timestamp); err != nil {
		return err
	}
	s.setLive(b, phys, hash, row)
	return nil
}

func (s *directory) winsOverPresent(p store.Partition, phys []byte, row *store.Row) (bool, error) {
	present, closer, err := s.stored(p, phys)
	if err != nil || closer == nil {
		return err == nil, err
	}
	defer closer.Close()
	return store.Beats(row.Timestamp, row.Value, present.ts, present.cell), nil
}

// stored reads the row or tombstone of the partition p under phys, a key in Pebble. If neither is stored, r is zero and
// closer is nil. If one is stored, the caller must close closer, and the cell (value) of r is valid until then.
func (s *directory) stored(p store.Partition, phys []byte) (r stored, closer io.Closer, err error) {
	v, closer, err := s.db.Get(phys)
	if errors.Is(err, pebble.ErrNotFound) {
		return r, nil, nil
	}
	if err != nil {
		return r, nil, err
	}
	r, ok := decodeStored(v)
	if !ok {
		return r, nil, errors.Join(corruptRow(p, phys[prefixBytes:]), closer.Close())
	}
	return r, closer, nil
}

func (s *directory) setLive(b *pebble.Batch, phys []byte, hash uint64, row *store.Row) {
	s.newest.raise(hash, row.Timestamp)
	op := b.SetDeferred(len(phys), rowHeader+len(row.Value))
	copy(op.Key, phys)
	putLive(op.Value, row.Timestamp, row.Value)
	_ = op.Finish() // fails only on indexed batches
}

// putMany puts many rows under the exclusive lock of their partition. Rows that may be older than the stored rows are
// compared with them; one iterator reads the stored rows in the order of the keys.
func (s *directory) putMany(ctx context.Context, p store.Partition, rows []store.Row) error {
	rows = winners(rows)
	m := s.lockPartition(p)
	b := s.db.NewBatchWithSize(keyBytes(rows) + valueBytes(rows) + len(rows)*(prefixBytes+rowHeader+8))
	return s.finish(ctx, b, m, s.putSorted(b, p, rows))
}

func (s *directory) putSorted(b *pebble.Batch, p store.Partition, rows []store.Row) (err error) {
	present := cursor{db: s.db, p: p, upper: append(rowKey(p, rows[len(rows)-1].Key), 0)}
	defer func() { err = errors.Join(err, present.close()) }()
	phys := make([]byte, 0, 256)
	var newest store.Timestamp
	for i := range rows {
		row := &rows[i]
		phys = appendRowKey(phys[:0], p, row.Key)
		hash := s.locks.hash(phys)
		if s.removals.cover(p, row.Key) >= row.Timestamp {
			continue
		}
		if !s.newest.below(hash, row.Timestamp) {
			r, err := present.seek(phys)
			if err != nil {
				return err
			}
			if r.kind != 0 && !store.Beats(row.Timestamp, row.Value, r.ts, r.cell) {
				continue
			}
		}
		s.setLive(b, phys, hash, row)
		newest = max(newest, row.Timestamp)
	}
	return s.reserve(newest)
}

// A cursor reads the stored rows of given keys by a single iterator, for a put of many rows. The caller asks for the
// keys in ascending order.
type cursor struct {
	db    *pebble.DB
	p     store.Partition
	upper []byte
	it    *pebble.Iterator
	more  bool
}

// seek returns the row or tombstone that is stored under the key phys, or zero if neither is stored. phys must be above
// the key of the previous call. The cell (value) of the row is valid until the next call.
func (c *cursor) seek(phys []byte) (r stored, err error) {
	if c.it == nil {
		if c.it, err = c.db.NewIter(&pebble.IterOptions{LowerBound: phys, UpperBound: c.upper}); err != nil {
			c.it = nil
			return r, err
		}
		c.more = c.it.First()
	} else if c.more && string(c.it.Key()) < string(phys) {
		c.more = c.it.SeekGE(phys)
	}
	if !c.more {
		return r, c.it.Error()
	}
	if string(c.it.Key()) != string(phys) {
		return r, nil
	}
	v, err := c.it.ValueAndErr()
	if err != nil {
		return r, err
	}
	r, ok := decodeStored(v)
	if !ok {
		return r, corruptRow(c.p, phys[prefixBytes:])
	}
	return r, nil
}

func (c *cursor) close() error {
	if c.it == nil {
		return nil
	}
	return c.it.Close()
}

// Delete stores a tombstone with the timestamp ts under the key in the partition p. It stores none if a row with a
// higher timestamp is stored there. It implements store.Rows.
func (s *directory) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	// A tombstone is stored even if there is no row, since an older put may still arrive. It is also stored if an older
	// tombstone, or the removal of an interval, hides the key already: then the time for which the tombstone is kept
	// counts from now.
	invalid := cmp.Or(storekit.CheckKey(key), storekit.CheckTimestamp(ts))
	if err := s.enterWrite(ctx, invalid, frees, len(key)); err != nil {
		return s.wrap("delete", p, err)
	}
	defer s.leave()
	phys := rowKey(p, key)
	m := s.lockKeys(p, [][]byte{phys})
	b := s.db.NewBatch()
	return s.wrap("delete", p, s.finish(ctx, b, m, s.addTombstone(b, p, phys, m.hashes[0], ts)))
}

func (s *directory) addTombstone(
	b *pebble.Batch, p store.Partition, phys []byte, hash uint64, ts store.Timestamp,
) error {
	if !s.newest.below(hash, ts) {
		present, closer, err := s.stored(p, phys)
		if err != nil {
			return err
		}
		if closer != nil {
			_ = closer.Close()
		}
		if present.ts > ts {
			if present.kind == rowLive {
				return nil
			}
			ts = present.ts
		}
	}
	if err := s.reserve(ts); err != nil {
		return err
	}
	s.newest.raise(hash, ts)
	at := s.o.now().UnixMicro()
	_ = b.Set(phys, tombstoneValue(ts, at), nil)
	_ = b.Set(queueKey(at, phys), nil, nil)
	return nil
}

// Get returns a copy of the row with the given key in the partition p, with its timestamp. The bool is false if there
// is no such row. Get waits until the row is synced. It implements store.Rows.
func (s *directory) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if err := s.enter(ctx, storekit.CheckKey(key)); err != nil {
		return store.Row{}, false, s.wrap("get", p, err)
	}
	defer s.leave()
	row, found, err := s.get(ctx, p, key)
	return row, found, s.wrap("get", p, err)
}

func (s *directory) get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	var short [256]byte
	phys := appendRowKey(short[:0], p, key)
	r, closer, err := s.stored(p, phys)
	if err != nil {
		return store.Row{}, false, err
	}
	if closer != nil {
		defer closer.Close()
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

// lockKeys takes the locks for a write of few rows: the lock of the partition p, shared, and then the locks of the keys
// phys, as stored in Pebble, exclusively. The method unlock of the result releases the locks.
func (s *directory) lockKeys(p store.Partition, phys [][]byte) *mark {
	m := &mark{locks: &s.locks, partition: s.locks.partition(p)}
	m.partition.RLock()
	m.hashes, m.stripes = m.oneHash[:0], m.one[:0]
	for _, k := range phys {
		m.hashes = append(m.hashes, s.locks.hash(k))
	}
	if len(phys) == 1 {
		m.stripes = append(m.stripes, &s.locks.stripes[s.locks.index(m.hashes[0])])
	} else {
		var index [wideRows]int
		for i, h := range m.hashes {
			index[i] = s.locks.index(h)
		}
		slices.Sort(index[:len(phys)])
		for _, i := range slices.Compact(index[:len(phys)]) {
			m.stripes = append(m.stripes, &s.locks.stripes[i])
		}
	}
	for _, t := range m.stripes {
		t.Lock()
	}
	return m
}

// lockPartition takes the exclusive lock of the partition p, for a write of many rows. The method unlock of the result
// releases the lock.
func (s *directory) lockPartition(p store.Partition) *mark {
	m := &mark{locks: &s.locks, partition: s.locks.partition(p), wide: true}
	m.partition.Lock()
	return m
}

// unlock releases the locks of one write, which lockKeys, lockPartition or lockStripe has taken.
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

// finish ends a write: it applies the batch b, releases the locks m and waits for the sync. If err is not nil, finish
// drops the batch and returns err. If the batch is empty, it waits until the stored rows are synced.
func (s *directory) finish(ctx context.Context, b *pebble.Batch, m *mark, err error) error {
	// An empty batch means that the stored rows win over the written rows. The write is acknowledged because of them.
	if err != nil || b.Empty() {
		pending := m.pending()
		m.unlock()
		_ = b.Close()
		if err == nil && pending {
			return s.settle(ctx)
		}
		return err
	}
	t, err := s.commit(b, m)
	m.unlock()
	if err != nil {
		return err
	}
	return s.await(ctx, t)
}

// pending reports whether a write that was made under one of the locks in m is not yet synced. The locks belong to the
// write that calls pending.
func (m *mark) pending() bool {
	return m.partition != nil && m.partition.unsynced.Load() != 0 ||
		slices.ContainsFunc(m.stripes, func(t *stripe) bool { return t.unsynced.Load() != 0 })
}

// winners returns the rows of a put sorted by key, with only one row for each key: the row that wins by its timestamp
// and value. The argument is not changed.
func winners(rows []store.Row) []store.Row {
	ascending := true
	for i := 1; i < len(rows) && ascending; i++ {
		ascending = bytes.Compare(rows[i-1].Key, rows[i].Key) < 0
	}
	if ascending {
		return rows
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b store.Row) int {
		switch c := bytes.Compare(a.Key, b.Key); {
		case c != 0:
			return c
		case store.Beats(a.Timestamp, a.Value, b.Timestamp, b.Value):
			return -1
		case store.Beats(b.Timestamp, b.Value, a.Timestamp, a.Value):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(rows, func(a, b store.Row) bool { return bytes.Equal(a.Key, b.Key) })
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
