package pebblestore

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// A removal is the stored deletion of all rows within bounds whose timestamps are at most ts. It is checked by later
// writes, so that older rows that arrive late stay deleted. Readers need not look at it, since the rows themselves are
// deleted when the removal is stored.
type removal struct {
	bounds store.Bounds
	ts     store.Timestamp
	at     int64 // the time at which it was stored, microseconds since 1970; unique in its partition
}

// removals has all stored removals (deletions of intervals of keys) in memory, so that writes can check them quickly.
// The removals of a partition change only under the partition's exclusive lock.
type removals struct {
	mu          sync.RWMutex
	byPartition map[store.Partition][]removal
}

// cover returns the timestamp up to which removals (stored deletions of intervals of keys) hide rows with the given key
// in the partition p. If several contain the key, the highest timestamp counts. The result is 0 if none does.
func (r *removals) cover(p store.Partition, key []byte) (ts store.Timestamp) {
	for _, v := range r.of(p) {
		if v.ts > ts && store.Within(key, v.bounds) {
			ts = v.ts
		}
	}
	return ts
}

// of returns the removals (stored deletions of intervals of keys) of the partition p. The caller must not change the
// returned slice, and it is never changed later.
func (r *removals) of(p store.Partition) []removal {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byPartition[p]
}

func (r *removals) set(p store.Partition, list []removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(list) == 0 {
		delete(r.byPartition, p)
		return
	}
	r.byPartition[p] = list
}

// Remove deletes the rows of the partition p within the interval of keys b, up to the timestamp ts. The same batch
// stores the deletion itself, which hides older rows that arrive later. Other writes to the partition wait while the
// rows within b are read, about a tenth of a second per million rows. Reads do not wait. It implements store.Rows.
func (s *directory) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	if err := s.enterWrite(ctx, cmp.Or(storekit.CheckBounds(b), storekit.CheckTimestamp(ts)), frees, 0); err != nil {
		return s.wrap("remove", p, err)
	}
	defer s.leave()
	return s.wrap("remove", p, s.remove(ctx, p, b, ts))
}

func (s *directory) remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	lower, upper := boundKeys(nil, p, b)
	if string(lower) >= string(upper) {
		return nil // no key lies within b
	}
	m := s.lockPartition(p)
	batch := s.db.NewBatch()
	v := removal{
		bounds: store.Bounds{Start: slices.Clone(b.Start), StartExclusive: b.StartExclusive, End: slices.Clone(b.End)},
		ts:     ts,
		at:     s.o.now().UnixMicro(),
	}
	list := s.removals.of(p)
	for slices.ContainsFunc(list, func(o removal) bool { return o.at == v.at }) {
		v.at++
	}
	kept := make([]removal, 0, len(list)+1)
	for _, o := range list {
		if o.ts <= ts && storekit.Covers(b, o.bounds) {
			_ = batch.Delete(removalKey(p, o.at), nil)
		} else {
			kept = append(kept, o)
		}
	}
	err := s.dropCovered(ctx, batch, lower, upper, ts)
	if err == nil {
		k := removalKey(p, v.at)
		_ = batch.Set(k, encodeRemoval(v), nil)
		_ = batch.Set(queueKey(v.at, k), nil, nil)
		// The list changes before the batch is applied: if applying the batch fails, all writing ends anyway.
		s.removals.set(p, append(kept, v))
	}
	return s.finish(ctx, batch, m, err)
}

// longRun is the number of neighbouring rows from which on one range deletion of Pebble deletes the rows. For fewer
// rows single deletions are cheaper, both now and for later reads.
const longRun = 16

// dropCovered adds to the batch the deletion of all stored rows and tombstones with a timestamp up to ts. It covers the
// stored keys from lower to upper (exclusive). A run of 16 (longRun) or more of them, without a newer row in between,
// is deleted by a single range deletion.
func (s *directory) dropCovered(
	ctx context.Context, batch *pebble.Batch, lower, upper []byte, ts store.Timestamp,
) error {
	start := lower // the beginning of the present run of covered rows
	run := 0       // the number of rows in the run
	var few [][]byte
	end := func(stop []byte) {
		if run >= longRun {
			_ = batch.DeleteRange(start, stop, nil)
		} else {
			for _, k := range few {
				_ = batch.Delete(k, nil)
			}
		}
		few, run, start = few[:0], 0, nil
	}
	err := s.walk(ctx, lower, upper, func(k, v []byte) (bool, error) {
		r, ok := decodeStored(v)
		if !ok {
			return false, corruptRow(partitionOf(k), k[prefixBytes:])
		}
		if r.ts > ts {
			end(k)
			return true, nil
		}
		if start == nil {
			start = slices.Clone(k)
		}
		if run++; run < longRun {
			few = append(few, slices.Clone(k))
		}
		return true, nil
	})
	end(upper)
	return err
}

func removalKey(p store.Partition, at int64) []byte {
	k := appendPrefix(make([]byte, 0, prefixBytes+8), tableRemovals, p)
	return binary.BigEndian.AppendUint64(k, uint64(at))
}

// encodeRemoval returns the stored form of the removal v, the deletion of an interval of keys: a version (1 byte),
// flags (1 byte), the timestamp (8 bytes), the length of the start key (4 bytes), the start key and the end key.
func encodeRemoval(v removal) []byte {
	b := []byte{1, 0}
	if v.bounds.StartExclusive {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(v.ts))
	b = binary.BigEndian.AppendUint32(b, uint32(len(v.bounds.Start)))
	return append(append(b, v.bounds.Start...), v.bounds.End...)
}

func decodeRemoval(key, b []byte) (p store.Partition, v removal, ok bool) {
	const header = 1 + 1 + 8 + 4
	if len(key) != prefixBytes+8 || len(b) < header || b[0] != 1 || b[1] > 1 {
		return p, v, false
	}
	n := int64(binary.BigEndian.Uint32(b[10:]))
	if n > int64(len(b)-header) {
		return p, v, false
	}
	b = slices.Clone(b)
	v.ts = store.Timestamp(binary.BigEndian.Uint64(b[2:]))
	v.at = int64(binary.BigEndian.Uint64(key[prefixBytes:]))
	v.bounds = store.Bounds{Start: b[header : header+n : header+n], StartExclusive: b[1] == 1, End: b[header+n:]}
	return partitionOf(key), v, v.ts > 0
}

// loadRemovals reads all stored removals, which are deletions of intervals of keys, into memory when the store opens.
func (s *directory) loadRemovals() error {
	s.removals.byPartition = map[store.Partition][]removal{}
	lower, upper := []byte{tableRemovals}, []byte{tableRemovals + 1}
	return s.walk(context.Background(), lower, upper, func(k, b []byte) (bool, error) {
		p, v, ok := decodeRemoval(k, b)
		if !ok {
			return false, store.Errorf(store.Corrupt, "the removal %x has no valid form", k)
		}
		s.removals.byPartition[p] = append(s.removals.byPartition[p], v)
		return true, nil
	})
}
