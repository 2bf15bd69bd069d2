package pebblestore

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// Locks order the read-compare-set of rows and registers. They are striped:
// what shares a stripe waits without need, and nothing is ever allocated.
//
// A write of few rows takes its partition's lock shared, then its keys' stripes
// in ascending order; a write of many rows, and a removal, take the partition's
// lock alone, exclusively. Nobody waits for a sync while holding one.
//
// Beside each lock stand counts of the writes that are, or may be, visible but
// not yet synced. They go up before a write is applied and down after its sync,
// so a reader that finds zero after its read has seen synced data only.
type locks struct {
	seed       maphash.Seed
	partitions [1024]partitionLock
	stripes    [1024]stripe
	unsynced   atomic.Int64 // of all, for the scans of whole tables
}

type partitionLock struct {
	sync.RWMutex
	unsynced atomic.Int32 // every write of rows
	wide     atomic.Int32 // those among them that took no stripes
	grouped  bool         // locked by the grouper, which alone looks at this
	_        [31]byte     // two of these would otherwise share a cache line
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

// stripe finds the stripe of a stored key.
func (l *locks) stripe(phys []byte) *stripe { return &l.stripes[l.index(l.hash(phys))] }

func (l *locks) hash(phys []byte) uint64 { return maphash.Bytes(l.seed, phys) }

func (l *locks) index(hash uint64) int { return int(hash % uint64(len(l.stripes))) }

// A mark is the set of counts that one write raised.
type mark struct {
	locks     *locks
	partition *partitionLock
	wide      bool
	shared    []*partitionLock // those of a group
	stripes   []*stripe
	hashes    []uint64   // of the keys that the stripes were locked for, in their order
	one       [1]*stripe // the stripe and hash of a single write, so that it allocates none
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
