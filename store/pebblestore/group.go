package pebblestore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// A grouper applies puts of few rows together. All puts that are queued become one batch, which is one record in
// Pebble's log, so that not each put costs a whole commit of Pebble. A put joins the batch only if it surely wins over
// the stored rows. Each other put is done alone, in a goroutine of its own, since it has to read the stored rows.
//
// The grouper's goroutine waits only for Pebble, never for a lock. So writers can give up at any time, even while
// Pebble stalls all writes.
type grouper struct {
	s        *directory
	queue    *queue[*put]
	underway atomic.Int64   // puts that were queued and are not done
	alone    sync.WaitGroup // puts that are done alone
}

const (
	// groupPuts is the most puts of one batch, and groupBytes the most bytes. Other writes under the same locks wait
	// while the batch is applied, some microseconds per put.
	groupPuts  = 128
	groupBytes = 1 << 20
)

// A put is one call of the method Put, with a copy of its rows in their stored form.
type put struct {
	p     store.Partition
	lock  *partitionLock
	rows  []putRow
	buf   []byte // the keys and values of rows
	ended func() // called when the put can't be applied any more (see PutThen); may be nil
	err   chan error
}

// A putRow is a row as it is stored in Pebble: the encoded key and the encoded value, with the timestamp and the hash
// of the key.
type putRow struct {
	key, value []byte
	ts         store.Timestamp
	hash       uint64 // of key
}

var puts = sync.Pool{New: func() any { return &put{err: make(chan error, 1)} }}

// newPut returns a put, the record of one call of Put, with a copy of its rows. If several rows have the same key, only
// the row that wins is copied. The function ended, unless nil, is called when the put has been applied or can't be
// applied any more.
func (s *directory) newPut(p store.Partition, rows []store.Row, ended func()) *put {
	if len(rows) > 1 {
		rows = winners(rows)
	}
	u := puts.Get().(*put)
	u.p, u.lock, u.ended = p, s.locks.partition(p), ended
	size := len(rows)*(prefixBytes+rowHeader) + keyBytes(rows) + valueBytes(rows)
	if cap(u.buf) < size {
		u.buf = make([]byte, 0, size+size/4)
	}
	b := u.buf[:0]
	for i := range rows {
		r := &rows[i]
		at := len(b)
		b = appendRowKey(b, p, r.Key)
		value := len(b)
		b = b[:value+rowHeader+len(r.Value)]
		putLive(b[value:], r.Timestamp, r.Value)
		key := b[at:value:value]
		u.rows = append(u.rows, putRow{key: key, value: slices.Clip(b[value:]), ts: r.Timestamp, hash: s.locks.hash(key)})
	}
	u.buf = b
	return u
}

// free returns the memory of the put u to a pool, for later calls of Put. The caller must not use u any more.
func (u *put) free() {
	const keep = 16 << 10
	if cap(u.buf) > keep || cap(u.rows) > wideRows {
		u.buf, u.rows = nil, nil
	}
	clear(u.rows)
	u.rows, u.lock, u.ended = u.rows[:0], nil, nil
	puts.Put(u)
}

// end tells the caller of a put that the put u has ended, by a call of the function in the field ended. It makes this
// call at most once. It is called when all of u has been applied, or nothing of u can be applied any more.
func (u *put) end() {
	if u.ended != nil {
		u.ended()
		u.ended = nil
	}
}

// wins reports whether each row of the put u certainly wins over the row that is stored under the same key. It compares
// timestamps with upper bounds in memory, and reads nothing. If the result is false, the caller has to read the stored
// rows.
func (s *directory) wins(u *put) bool {
	return !slices.ContainsFunc(u.rows, func(r putRow) bool { return !s.newest.below(r.hash, r.ts) })
}

// covered reports whether a removal hides any row of the put u. A removal is the stored deletion of all rows in an
// interval of keys up to a timestamp.
func (s *directory) covered(u *put) bool {
	return slices.ContainsFunc(u.rows, func(r putRow) bool {
		return s.removals.cover(u.p, r.key[prefixBytes:]) >= r.ts
	})
}

func newGrouper(s *directory) *grouper {
	g := &grouper{s: s}
	g.queue = newQueue(g.letOthersAdd, func(list []*put) {
		for len(list) > 0 {
			list = list[g.apply(list):]
		}
	})
	return g
}

// add queues the put u (one call of Put), which will be applied in one batch with other puts. The outcome, an error or
// nil, is sent to the channel u.err.
func (g *grouper) add(u *put) {
	g.underway.Add(1)
	g.queue.add(u)
}

// letOthersAdd yields the processor, so that other goroutines queue their puts first and more puts share a batch. With
// 64 writers a batch has some 20 puts instead of 1.2.
func (g *grouper) letOthersAdd() {
	// A sync wakes many writers at once. The first of them to put wakes the goroutine of the grouper, which the
	// scheduler would otherwise run before the other writers.
	if g.underway.Load() > 1 {
		runtime.Gosched()
	}
}

// apply applies the first puts of the list as one batch, and returns the number of puts that it has taken from the
// list. A put that has to wait for a lock, or to read the stored rows, does not join the batch: a goroutine of its own
// applies it.
func (g *grouper) apply(list []*put) (n int) {
	s := g.s
	c := groups.Get().(*group)
	b := s.db.NewBatch()
	bytes := 0
	var newest store.Timestamp
	for _, u := range list[:min(len(list), groupPuts)] {
		if bytes > 0 && bytes+len(u.buf) > groupBytes {
			break
		}
		n++
		if !c.lock(&s.locks, u) || !s.wins(u) || s.covered(u) {
			g.underway.Add(-1)
			g.goAlone(u)
			continue
		}
		bytes += len(u.buf)
		for i := range u.rows {
			r := &u.rows[i]
			s.newest.raise(r.hash, r.ts)
			_ = b.Set(r.key, r.value, nil)
			newest = max(newest, r.ts)
		}
		c.puts = append(c.puts, u)
	}
	if len(c.puts) == 0 {
		_ = b.Close()
		c.unlock()
		c.free()
		return n
	}
	err := s.reserve(newest)
	if err == nil {
		err = s.applyMarked(b, &c.mark)
	}
	c.unlock()
	for _, u := range c.puts {
		u.end() // a crash may still lose the put, but then also every later write
	}
	c.grouper = g
	switch {
	case err != nil:
		c.done(err)
	case s.o.NoSync:
		c.done(b.Close())
	default:
		s.syncer.add(b, &c.mark, c)
	}
	return n
}

// goAlone applies the put u in a new goroutine, apart from other puts, since the put may have to wait for locks or to
// read the stored rows. The outcome is sent to the channel u.err.
func (g *grouper) goAlone(u *put) {
	g.alone.Go(func() {
		rows := make([]store.Row, len(u.rows))
		for i := range u.rows {
			r := &u.rows[i]
			rows[i] = store.Row{Key: r.key[prefixBytes:], Value: r.value[rowHeader:], Timestamp: r.ts}
		}
		err := g.s.putNow(context.Background(), u.p, rows)
		u.end()
		u.err <- err
	})
}

// stop waits until all queued puts are applied, though perhaps not yet synced. No put may be queued after the call of
// stop.
func (g *grouper) stop() {
	g.queue.stop()
	g.alone.Wait()
}

// A group is several calls of Put that are applied as one batch, with the locks that the batch holds.
type group struct {
	mark
	grouper *grouper
	puts    []*put
}

var groups = sync.Pool{New: func() any { return &group{} }}

// lock takes the locks that the put u needs in order to join the batch of the group c. It never waits: if a lock is not
// free, it returns false. The locks that it has taken until then are kept, and unlock releases all locks of the group.
func (c *group) lock(l *locks, u *put) bool {
	c.locks = l
	if !u.lock.grouped {
		if !u.lock.TryRLock() {
			return false
		}
		u.lock.grouped = true
		c.shared = append(c.shared, u.lock)
	}
	for i := range u.rows {
		t := &l.stripes[l.index(u.rows[i].hash)]
		if t.grouped {
			continue
		}
		if !t.TryLock() {
			return false
		}
		t.grouped = true
		c.stripes = append(c.stripes, t)
	}
	return true
}

func (c *group) unlock() {
	for _, t := range c.stripes {
		t.grouped = false
		t.Unlock()
	}
	for _, p := range c.shared {
		p.grouped = false
		p.RUnlock()
	}
}

// done ends a group, which is several puts that were applied as one batch. It sends the outcome of the batch, an error
// or nil, to the writer of each put.
func (c *group) done(err error) {
	c.grouper.underway.Add(-int64(len(c.puts)))
	for _, u := range c.puts {
		u.err <- err
	}
	c.free()
}

func (c *group) free() {
	clear(c.puts)
	clear(c.stripes)
	clear(c.shared)
	c.puts, c.stripes, c.shared = c.puts[:0], c.stripes[:0], c.shared[:0]
	groups.Put(c)
}

// awaitPut waits for the outcome of the put u, one call of Put, and returns the outcome: an error or nil. If ctx ends
// first, or the store can't write any more, awaitPut returns the reason, and the outcome stays unknown.
func (s *directory) awaitPut(ctx context.Context, u *put) error {
	ended, err := s.outcome(ctx, u.err)
	if ended {
		u.free()
	}
	return err
}
