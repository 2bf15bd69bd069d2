package pebblestore

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// A syncer waits, for everybody, until applied writes lie in a synced log.
//
// Pebble groups the syncs: a batch applied by ApplyNoSyncWait is visible and
// ordered at once, and part of the next sync. Waiting for that is all that is
// left, and it is done here by one goroutine rather than by each writer, for two
// reasons: a writer can give up, at its context's end or when the log waits for
// disk space; and the counts of unsynced writes (locks.go) go down when the sync
// has really happened, whoever has given up.
//
// An earlier version synced from this goroutine, one empty record for all that
// had been applied: with 64 writers it reached 0.55 to 0.68 of bare Pebble,
// since each round began only when this goroutine had been scheduled again. Puts
// of few rows, of which there are most, come as groups (group.go): one ticket each.
type syncer struct {
	failed func(error) // called when a sync fails
	mu     sync.Mutex
	queue  []*ticket
	spare  []*ticket
	wake   chan struct{}
	ended  chan struct{}
}

// A ticket is one applied batch that is not yet known to be synced.
type ticket struct {
	batch *pebble.Batch
	mark  *mark  // may be nil
	group *group // whose batch it is; nil: somebody waits for err
	err   chan error
}

var tickets = sync.Pool{New: func() any { return &ticket{err: make(chan error, 1)} }}

func newSyncer(failed func(error)) *syncer {
	y := &syncer{failed: failed, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go y.run()
	return y
}

// add queues an applied batch; the syncer closes it.
func (y *syncer) add(b *pebble.Batch, m *mark) *ticket {
	t := tickets.Get().(*ticket)
	t.batch, t.mark = b, m
	y.queueUp(t)
	return t
}

// addGroup queues the applied batch of a group; the syncer closes it and tells
// those of the group.
func (y *syncer) addGroup(b *pebble.Batch, c *group) {
	t := tickets.Get().(*ticket)
	t.batch, t.mark, t.group = b, &c.mark, c
	y.queueUp(t)
}

func (y *syncer) queueUp(t *ticket) {
	y.mu.Lock()
	y.queue = append(y.queue, t)
	first := len(y.queue) == 1
	y.mu.Unlock()
	if first {
		y.wake <- struct{}{} // never blocks: one per emptied queue
	}
}

func (y *syncer) run() {
	defer close(y.ended)
	for range y.wake {
		y.mu.Lock()
		list := y.queue
		y.queue, y.spare = y.spare[:0], nil
		y.mu.Unlock()
		for i, t := range list {
			err := t.batch.SyncWait()
			if err != nil {
				y.failed(err)
			} else {
				if t.mark != nil {
					t.mark.lower()
				}
				_ = t.batch.Close()
			}
			c := t.group
			t.batch, t.mark, t.group, list[i] = nil, nil, nil, nil
			if c == nil {
				t.err <- notSynced(err)
				continue
			}
			tickets.Put(t)
			c.done(notSynced(err))
		}
		y.mu.Lock()
		y.spare = list
		y.mu.Unlock()
	}
}

// stop ends the goroutine once everything queued is synced; nobody may add any
// more.
func (y *syncer) stop() {
	close(y.wake)
	<-y.ended
}

// commit applies a batch. The caller holds the locks that order it; they may go
// as soon as commit returns. The batch is used up. The ticket is for await; it
// is nil where nothing waits for syncs.
func (s *Store) commit(b *pebble.Batch, m *mark) (*ticket, error) {
	if err := s.applyMarked(b, m); err != nil {
		return nil, err
	}
	if s.o.NoSync {
		return nil, b.Close()
	}
	return s.syncer.add(b, m), nil
}

// applyMarked applies a batch that a sync is still to be waited for, unless
// nothing waits for syncs.
func (s *Store) applyMarked(b *pebble.Batch, m *mark) error {
	if s.o.NoSync {
		return s.apply(func() error { return s.db.Apply(b, pebble.NoSync) })
	}
	if m != nil {
		m.raise()
	}
	return s.apply(func() error { return s.db.ApplyNoSyncWait(b, pebble.Sync) })
}

func notSynced(err error) error {
	if err == nil {
		return nil
	}
	return store.Errorf(store.Unavailable, "the log could not be synced: %w", err)
}

// apply runs a commit. If it fails nobody knows what of it is in the log: the
// counts stay up, so no reader trusts what it sees there, and writing ends.
func (s *Store) apply(commit func() error) error {
	if err := guardPanic(commit); err != nil {
		s.disk.fail(err)
		return store.Errorf(store.Unavailable, "the write could not be applied: %w", err)
	}
	return nil
}

// await waits until a batch is synced. Giving up early leaves the outcome
// unknown.
func (s *Store) await(ctx context.Context, t *ticket) error {
	if t == nil {
		return nil
	}
	select {
	case err := <-t.err:
		tickets.Put(t)
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.disk.troubled():
		return s.disk.trouble()
	}
}

// settle waits until everything is synced that was visible before the call. A
// reader calls it when a count was not zero; so does a write that found itself
// superseded, whose acknowledgement rests on what superseded it.
func (s *Store) settle(ctx context.Context) error {
	if s.o.NoSync {
		return nil
	}
	select {
	case <-s.disk.troubled(): // no sync may ever come
		return s.disk.trouble()
	default:
	}
	b := s.barriers.join(s)
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.disk.troubled():
		return s.disk.trouble()
	}
}

// barriers are the syncs that readers wait for. All who come while one is under way
// share the next one, and one goroutine does them, one after the other: so however
// many readers there are, and whatever holds the log up, Pebble has one sync of
// theirs to do, and none of them waits within Pebble, where neither its context nor
// a broken disk would end the wait.
type barriers struct {
	mu      sync.Mutex
	next    *barrier // the one that has not begun; nil: nobody waits for one
	running bool
}

type barrier struct {
	done chan struct{}
	err  error // set before done is closed
}

// join returns a barrier that begins after the call. The caller has entered s.
func (r *barriers) join(s *Store) *barrier {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &barrier{done: make(chan struct{})}
	}
	if !r.running {
		r.running = true
		s.background.Go(func() { r.run(s) }) // Close waits for it once all callers have left
	}
	return r.next
}

// run does barriers until nobody waits for one.
func (r *barriers) run(s *Store) {
	for {
		r.mu.Lock()
		b := r.next
		r.next = nil
		r.running = b != nil
		r.mu.Unlock()
		if b == nil {
			return
		}
		b.err = s.syncNow()
		close(b.done)
	}
}

// syncNow syncs the log up to all that is visible.
func (s *Store) syncNow() error {
	b := s.db.NewBatch()
	_ = b.LogData(nil, nil)
	if err := s.apply(func() error { return s.db.Apply(b, pebble.Sync) }); err != nil {
		return err
	}
	return b.Close()
}
