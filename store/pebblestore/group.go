package pebblestore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// A grouper applies puts of few rows in groups: all that are queued become one batch, one
// record in the log. Without groups each put would cost a whole commit of Pebble.
//
// Its goroutine waits only for Pebble. It never waits for a lock, and a batch gets only puts
// that win without a read of the present row; the others are done alone. So writers can give up
// at any time, also while Pebble stalls all writes.
type grouper struct {
	s        *Store
	queue    *queue[*put]
	underway atomic.Int64   // puts that were queued and are not done
	alone    sync.WaitGroup // puts that are done alone
}

const (
	// groupPuts and groupBytes bound one batch: other writes of the same stripes wait while
	// it is applied, some microseconds per put.
	groupPuts  = 128
	groupBytes = 1 << 20
)

// A put is one call of Put, with its own memory.
type put struct {
	p     store.Partition
	lock  *partitionLock
	rows  []putRow
	buf   []byte // the keys and values of rows
	ended func() // see PutThen; may be nil
	err   chan error
}

// A putRow is a row in its stored form.
type putRow struct {
	key, value []byte
	ts         store.Timestamp
	hash       uint64 // of key
}

var puts = sync.Pool{New: func() any { return &put{err: make(chan error, 1)} }}

// newPut copies rows; of several with one key only the one that wins.
func (s *Store) newPut(p store.Partition, rows []store.Row, ended func()) *put {
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

// free returns a put to the pool. Nothing else may refer to it.
func (u *put) free() {
	const keep = 16 << 10
	if cap(u.buf) > keep || cap(u.rows) > wideRows {
		u.buf, u.rows = nil, nil
	}
	clear(u.rows)
	u.rows, u.lock, u.ended = u.rows[:0], nil, nil
	puts.Put(u)
}

// end calls ended: no part of the put can be applied later.
func (u *put) end() {
	if u.ended != nil {
		u.ended()
		u.ended = nil
	}
}

// wins reports whether each row wins whatever is stored under its key.
func (s *Store) wins(u *put) bool {
	return !slices.ContainsFunc(u.rows, func(r putRow) bool { return !s.newest.below(r.hash, r.ts) })
}

// covered reports whether a removal covers some row.
func (s *Store) covered(u *put) bool {
	return slices.ContainsFunc(u.rows, func(r putRow) bool {
		return s.removals.cover(u.p, r.key[prefixBytes:]) >= r.ts
	})
}

func newGrouper(s *Store) *grouper {
	g := &grouper{s: s}
	g.queue = newQueue(g.letOthersAdd, func(list []*put) {
		for len(list) > 0 {
			list = list[g.apply(list):]
		}
	})
	return g
}

// add queues a put; u.err gets its outcome.
func (g *grouper) add(u *put) {
	g.underway.Add(1)
	g.queue.add(u)
}

// letOthersAdd lets other writers run first, so that groups get larger. A sync wakes many
// writers at once, and the first of them to put wakes this goroutine, which the scheduler runs
// before the other writers. Without this, groups of 64 writers had 1.2 puts instead of some 20.
func (g *grouper) letOthersAdd() {
	if g.underway.Load() > 1 {
		runtime.Gosched()
	}
}

// apply applies the first puts of a list as one batch and returns their number.
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
		u.end() // a crash may still lose it, but then also all that is applied after it
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

// goAlone does one put in a goroutine of its own, as it may have to wait for locks or to read
// the present rows.
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

// stop waits until all puts are applied; they may not be synced yet. Nothing may be added any
// more.
func (g *grouper) stop() {
	g.queue.stop()
	g.alone.Wait()
}

// A group has the puts of one batch and all locks that they need.
type group struct {
	mark
	grouper *grouper
	puts    []*put
}

var groups = sync.Pool{New: func() any { return &group{} }}

// lock takes the locks that a put needs. It returns false where it would have to wait; the
// locks taken so far are kept until unlock.
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

// done reports the outcome to all writers of the group.
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

// awaitPut waits for the outcome of a put.
func (s *Store) awaitPut(ctx context.Context, u *put) error {
	ended, err := s.outcome(ctx, u.err)
	if ended {
		u.free()
	}
	return err
}
