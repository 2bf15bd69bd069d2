package pebblestore

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// locks are the locks that order the writes of rows and registers. Each write reads the stored state, compares and
// writes while it holds locks. Keys are hashed to a fixed number of locks, so writes of different keys may wait for
// each other.
//
// A write of few rows takes the lock of its partition shared, then the locks of its keys in ascending order. A write of
// many rows, and a removal, take only the lock of the partition, exclusively. No lock is held during a sync.
//
// Beside each lock are counts of the writes that may be visible but are not yet synced. A count is raised before a
// write is applied and lowered after its sync. So if a reader finds zero after its read, everything that the reader has
// seen is synced.
type locks struct {
	seed       maphash.Seed
	partitions [1024]partitionLock
	stripes    [1024]stripe
	unsynced   atomic.Int64 // the count of all writes, for scans of whole tables
}

type partitionLock struct {
	sync.RWMutex
	unsynced atomic.Int32 // the count of all writes of rows
	wide     atomic.Int32 // the count of those writes that took no stripes
	grouped  bool         // locked by the grouper; only its goroutine uses this
	_        [31]byte     // against false sharing of cache lines
}

type stripe struct {
	sync.Mutex
	unsynced atomic.Int32
	grouped  bool // as in partitionLock
	_        [51]byte
}

func (l *locks) partition(p store.Partition) *partitionLock {
	return &l.partitions[maphash.Comparable(l.seed, p)%uint64(len(l.partitions))]
}

// stripe returns the lock for phys, a key that is stored in Pebble. The hash of the key selects one of a fixed number
// of locks, so other keys may have the same lock.
func (l *locks) stripe(phys []byte) *stripe { return &l.stripes[l.index(l.hash(phys))] }

func (l *locks) hash(phys []byte) uint64 { return maphash.Bytes(l.seed, phys) }

func (l *locks) index(hash uint64) int { return int(hash % uint64(len(l.stripes))) }

// A mark is the set of locks that one write, or one batch of several puts, holds. Beside each lock is a count of the
// writes that are visible but not yet synced. The write raises the counts of its mark before it is applied, and lowers
// them after the sync.
type mark struct {
	locks     *locks
	partition *partitionLock
	wide      bool
	shared    []*partitionLock // the locks of a group's partitions
	stripes   []*stripe
	hashes    []uint64   // of the keys, in their order
	one       [1]*stripe // memory for the stripe and hash of a single write
	oneHash   [1]uint64
}

func (m *mark) raise() { m.add(1) }
func (m *mark) lower() { m.add(-1) }

func (m *mark) add(n int32) {
	m.locks.unsynced.Add(int64(n))
	if m.partition != nil {
		m.partition.unsynced.Add(n)
		if m.wide {
			m.partition.wide.Add(n)
		}
	}
	for _, p := range m.shared {
		p.unsynced.Add(n)
	}
	for _, s := range m.stripes {
		s.unsynced.Add(n)
	}
}
