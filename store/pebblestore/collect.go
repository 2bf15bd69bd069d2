package pebblestore

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// collectAtMost is the largest number of expired deletions that one call of collect drops; the next call drops more. A
// deletion is either the tombstone of one key or a removal, which deletes an interval of keys.
const collectAtMost = 10_000

// collectLoop drops expired tombstones and removals (deletions of intervals of keys) in the background, until the store
// is closed.
func (s *directory) collectLoop() {
	// A table in Pebble, the queue table, lists them, oldest first. So looking for expired ones costs only one seek if
	// there are none.
	defer s.background.Done()
	tick := time.NewTicker(max(min(time.Minute, s.o.TombstoneGrace/10), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		if err := s.collect(collectAtMost); err != nil {
			s.o.Logger.Warn("expired tombstones could not be dropped; it is tried again", "dir", s.dir, "cause", err)
		}
	}
}

// collect drops expired tombstones and removals (deletions of intervals of keys), at most limit of both together. It
// needs no sync: if a crash undoes its work, a later call does the work again.
func (s *directory) collect(limit int) error {
	if err := s.disk.admit(frees, 0); err != nil {
		return err
	}
	due := s.o.now().Add(-s.o.TombstoneGrace).UnixMicro()
	lower, upper := []byte{tableQueue}, []byte{tableQueue + 1}
	return s.walk(context.Background(), lower, upper, func(entry, _ []byte) (bool, error) {
		limit--
		at, dead, ok := splitQueueKey(entry)
		if !ok {
			return false, store.Errorf(store.Corrupt, "the queue entry %x has no valid form", entry)
		}
		select {
		case <-s.quit:
			return false, nil
		default:
		}
		switch {
		case at > due:
			return false, nil
		case dead[0] == tableRemovals:
			return limit > 0, s.collectRemoval(entry, dead)
		}
		return limit > 0, s.collectTombstone(entry, dead, at)
	})
}

// collectTombstone drops an expired tombstone, unless a newer row or tombstone is stored under its key by now. It also
// drops entry, the key that lists the tombstone in the queue table. The parameter phys is the key under which the
// tombstone is stored, and at is the time at which it was stored, in microseconds since 1970.
func (s *directory) collectTombstone(entry, phys []byte, at int64) error {
	m := s.lockKeys(partitionOf(phys), [][]byte{phys})
	defer m.unlock()
	v, err := s.read(phys)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	if r, ok := decodeStored(v); ok && r.kind == rowTombstone && r.at == at {
		_ = b.Delete(phys, nil)
	}
	return s.dropEntry(b, entry)
}

// collectRemoval drops an expired removal, which is the stored deletion of an interval of keys. The parameter key is
// the key under which the removal is stored, and entry is the key that lists it in the queue table. If the removal is
// gone already, since a wider one has replaced it, only entry is dropped.
func (s *directory) collectRemoval(entry, key []byte) error {
	p := partitionOf(key)
	m := s.lockPartition(p)
	defer m.unlock()
	kept := slices.DeleteFunc(slices.Clone(s.removals.of(p)), func(v removal) bool {
		return string(removalKey(p, v.at)) == string(key)
	})
	b := s.db.NewBatch()
	_ = b.Delete(key, nil)
	err := s.dropEntry(b, entry)
	if err == nil {
		s.removals.set(p, kept)
	}
	return err
}

func (s *directory) dropEntry(b *pebble.Batch, entry []byte) error {
	_ = b.Delete(entry, nil)
	if err := s.apply(func() error { return s.db.Apply(b, pebble.NoSync) }); err != nil {
		return err
	}
	return b.Close()
}
