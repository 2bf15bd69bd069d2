package pebblestore

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// collectAtMost bounds the entries of one collection.
const collectAtMost = 10_000

// collectLoop drops tombstones and removals whose grace is over. It finds them by the queue
// table, oldest first; with nothing due that is one seek.
func (s *Store) collectLoop() {
	defer s.background.Done()
	tick := time.NewTicker(s.o.collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		if err := s.collect(collectAtMost); err != nil {
			s.o.Logger.Warn("dead rows could not be collected; it is tried again", "dir", s.dir, "cause", err)
		}
	}
}

// collect drops up to limit tombstones and removals whose grace is over. It needs no sync:
// what a crash undoes is collected again.
func (s *Store) collect(limit int) (err error) {
	if err := s.disk.admit(true, 0); err != nil {
		return err
	}
	due := s.o.now().Add(-s.o.TombstoneGrace).UnixMicro()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tableQueue}, UpperBound: []byte{tableQueue + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for more := it.First(); more && limit > 0; more = it.Next() {
		limit--
		at, dead, ok := splitQueueKey(it.Key())
		if !ok {
			return store.Errorf(store.Corrupt, "the queue entry %x has no valid form", it.Key())
		}
		if at > due {
			break
		}
		select {
		case <-s.quit:
			return nil
		default:
		}
		if dead[0] == tableRemovals {
			err = s.collectRemoval(it.Key(), dead)
		} else {
			err = s.collectTombstone(it.Key(), dead, at)
		}
		if err != nil {
			return err
		}
	}
	return it.Error()
}

// collectTombstone drops a tombstone if it is still the one that was queued.
func (s *Store) collectTombstone(entry, phys []byte, at int64) error {
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

// collectRemoval drops a removal; a wider one may have taken its place before.
func (s *Store) collectRemoval(entry, key []byte) error {
	p := partitionOf(key)
	m := s.lockPartition(p)
	defer m.unlock()
	var kept []removal
	for _, v := range s.removals.of(p) {
		if string(removalKey(p, v.at)) != string(key) {
			kept = append(kept, v)
		}
	}
	b := s.db.NewBatch()
	_ = b.Delete(key, nil)
	err := s.dropEntry(b, entry)
	if err == nil {
		s.removals.set(p, kept)
	}
	return err
}

func (s *Store) dropEntry(b *pebble.Batch, entry []byte) error {
	_ = b.Delete(entry, nil)
	if err := s.apply(func() error { return s.db.Apply(b, pebble.NoSync) }); err != nil {
		return err
	}
	return b.Close()
}
