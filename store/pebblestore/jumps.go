package pebblestore

import (
	"sync/atomic"
	"time"
)

// Listings that pass over stretches of rows jump. In a memtable each jump is a search, which takes ten times as long as
// in tables, where blocks are searched that are at hand, and groups are known. So a memtable in which listings jump a
// lot is flushed before it is full.
const (
	// jumpsToFlush is how many jumps cost more than a flush: some 50 ms.
	jumpsToFlush = 20_000
	// leastFlush is the least log, of what the memtable has, that is flushed for that: in small ones jumps are fast.
	leastFlush = 4 << 20
	// flushEvery bounds how often, as many small tables make work for compactions.
	flushEvery = 10 * time.Second
)

// jumps are those of all listings.
type jumps struct {
	n       atomic.Int64 // since the last look
	flushed atomic.Pointer[time.Time]
}

// jumped counts jumps, and begins a flush where it pays. The caller has entered the store.
func (s *Store) jumped(n int) {
	if n == 0 || s.jumps.n.Add(int64(n)) < jumpsToFlush {
		return
	}
	s.jumps.n.Store(0)
	last, now := s.jumps.flushed.Load(), time.Now()
	if last != nil && now.Sub(*last) < flushEvery {
		return
	}
	memTable, m := s.disk.memTable(s.o.MemTableBytes), s.db.Metrics()
	if m.WAL.Size < leastFlush || s.disk.admit(adds, int(memTable)) != nil {
		return
	}
	// Where memtables wait for being flushed, one more could make the reader wait, too.
	if m.MemTable.Size > uint64(memTablesQueued/2*memTable) {
		return
	}
	if !s.jumps.flushed.CompareAndSwap(last, &now) {
		return // another listing does it
	}
	if _, err := s.db.AsyncFlush(); err != nil {
		s.o.Logger.Warn("a memtable could not be flushed for listings; they are slower", "error", err)
	}
}
