package pebblestore

import (
	"context"
	"runtime"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// A grouper applies the puts of few rows: all that are there at a time become
// one batch, with one place in the log. Alone, each of them would cost Pebble's
// whole commit.
//
// It is one goroutine that waits for nothing but Pebble: it only tries locks,
// and takes into a batch only what wins without a look at the present row. What
// it can't take goes alone. So whoever puts can give up at any time, also while
// Pebble holds up all writes.
type grouper struct {
	s     *Store
	alone sync.WaitGroup // puts that went alone
	wake  chan struct{}
	ended chan struct{}

	mu       sync.Mutex
	queue    []*put
	underway int // puts that were queued and are not done
}

const (
	// groupPuts and groupBytes bound one batch: others of the same stripes wait
	// while it is applied, some microseconds for each put.
	groupPuts  = 128
	groupBytes = 1 << 20
)

// A put is a batch of rows on its way, with memory of its own.
type put struct {
	p     store.Partition
	lock  *partitionLock
	rows  []putRow
	buf   []byte // the keys and values of rows
	ended func() // told when the put has really ended; may be nil
	err   chan error
}

// A putRow is a row as it will be stored.
type putRow struct {
	key, value []byte
	ts         store.Timestamp
	hash       uint64 // of key
}

var puts = sync.Pool{New: func() any { return &put{err: make(chan error, 1)} }}

// newPut copies rows, of several with one key the one that wins.
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
		u.rows = append(
			u.rows,
			putRow{key: b[at:value:value], value: b[value:len(b):len(b)], ts: r.Timestamp, hash: s.locks.hash(b[at:value])},
		)
	}
	u.buf = b
	return u
}

// free gives a put back that nobody else knows any more.
func (u *put) free() {
	const keep = 16 << 10
	if cap(u.buf) > keep || cap(u.rows) > wideRows {
		u.buf, u.rows = nil, nil
	}
	clear(u.rows)
	u.rows, u.lock, u.ended = u.rows[:0], nil, nil
	puts.Put(u)
}

// end tells that nothing of a put can come later.
func (u *put) end() {
	if u.ended != nil {
		u.ended()
		u.ended = nil
	}
}

// wins reports whether each row wins whatever is stored under its key.
func (s *Store) wins(u *put) bool {
	for i := range u.rows {
		if !s.newest.below(u.rows[i].hash, u.rows[i].ts) {
			return false
		}
	}
	return true
}

// covered reports whether a removal is in the way of some row.
func (s *Store) covered(u *put) bool {
	for i := range u.rows {
		if s.removals.cover(u.p, u.rows[i].key[prefixBytes:]) >= u.rows[i].ts {
			return true
		}
	}
	return false
}

func newGrouper(s *Store) *grouper {
	g := &grouper{s: s, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go g.run()
	return g
}

// add queues a put; its outcome comes by u.err.
func (g *grouper) add(u *put) {
	g.mu.Lock()
	g.underway++
	g.queue = append(g.queue, u)
	first := len(g.queue) == 1
	g.mu.Unlock()
	if first {
		g.wake <- struct{}{} // never blocks: one per emptied queue
	}
}

// less says that so many queued puts are done.
func (g *grouper) less(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underway -= n
}

// run applies what is queued. A sync wakes many writers at once, and the first of
// them to put something wakes this goroutine, which the scheduler runs before the
// others. So where there are others it lets them go first: without that, groups of
// 64 writers had 1.2 puts instead of some 20.
func (g *grouper) run() {
	defer close(g.ended)
	var spare []*put
	for range g.wake {
		g.mu.Lock()
		others := g.underway > 1
		g.mu.Unlock()
		if others {
			runtime.Gosched()
		}
		g.mu.Lock()
		list := g.queue
		g.queue = spare[:0]
		g.mu.Unlock()
		for rest := list; len(rest) > 0; {
			rest = rest[g.apply(rest):]
		}
		clear(list)
		spare = list
	}
}

// apply applies the first of a list as one batch and returns how many.
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
			g.less(1)
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
		u.end() // a crash may still take it, but nothing that comes after it
	}
	c.grouper = g
	switch {
	case err != nil:
		c.done(err)
	case s.o.NoSync:
		c.done(b.Close())
	default:
		s.syncer.addGroup(b, c)
	}
	return n
}

// goAlone does a put by itself: it may have to wait for locks, or to look at
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

// stop ends the goroutine once everything queued is done, but for the syncs;
// nobody may add any more.
func (g *grouper) stop() {
	close(g.wake)
	<-g.ended
	g.alone.Wait()
}

// A group is the puts of one batch, with the locks that they need together.
type group struct {
	mark
	grouper *grouper
	puts    []*put
}

var groups = sync.Pool{New: func() any { return &group{} }}

// lock locks what a put needs, unless it would have to wait. What it has locked
// by then stays so until unlock.
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

// done tells all who wait.
func (c *group) done(err error) {
	c.grouper.less(len(c.puts))
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

// awaitPut waits for a put's outcome. Giving up early leaves it unknown.
func (s *Store) awaitPut(ctx context.Context, u *put) error {
	select {
	case err := <-u.err:
		u.free()
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.disk.troubled():
		return s.disk.trouble()
	}
}
