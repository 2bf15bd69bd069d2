package pebblestore

import (
	"sync/atomic"
	"time"
)

// These constants decide when a memtable is flushed early to make listings faster. A memtable is the part of the store
// in memory. A listing jumps over rows that it does not show, and a jump in a memtable takes ten times as long as a
// jump in a table on disk. So a memtable in which listings jump often is flushed before it is full.
const (
	// jumpsToFlush is the number of jumps that together cost more time than a flush, which takes some 50 ms.
	jumpsToFlush = 20_000
	// leastFlush is the size in bytes of the smallest log of a memtable that is flushed early. In a small memtable
	// jumps are fast.
	leastFlush = 4 << 20
	// flushEvery is the least time between two early flushes, since many small tables make work for compactions.
	flushEvery = 10 * time.Second
)

// jumps counts how often listings jump over rows that they do not show. After many jumps the memtable is flushed, since
// jumps are faster in tables on disk.
type jumps struct {
	n       atomic.Int64 // jumps since their number last reached jumpsToFlush
	flushed atomic.Pointer[time.Time]
}

// jumped records that a listing has jumped n times over rows that it does not show. After many jumps it begins to flush
// the memtable, since jumps are faster in tables on disk. The caller must have entered the store (see directory.enter).
func (s *directory) jumped(n int) {
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
	// If memtables already wait for being flushed, one more could make the reader wait, too.
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
