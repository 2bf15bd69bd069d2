package pebblestore

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// A syncer makes applied writes durable, many with one sync.
//
// Writes are applied unsynced: they are then in Pebble's memtable and log
// buffer, in order. Whoever needs them durable joins the next round; one
// goroutine runs the rounds, each an empty synced log record behind everything
// applied before. So no lock is held during a sync, waiting can be given up,
// and a log that waits for disk space holds up nobody who does not want to.
type syncer struct {
	db   *pebble.DB
	mu   sync.Mutex
	next *round // not yet begun; nil: nobody waits
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
}

// A round is one sync. err may be read once done is closed.
type round struct {
	done chan struct{}
	err  error
}

func newSyncer(db *pebble.DB) *syncer {
	y := &syncer{db: db, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go y.run()
	return y
}

// join returns a round that begins after this call.
func (y *syncer) join() *round {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.next == nil {
		y.next = &round{done: make(chan struct{})}
		y.wake <- struct{}{} // never blocks: only the first of a round sends
	}
	return y.next
}

func (y *syncer) run() {
	defer close(y.done)
	for {
		quit := false
		select {
		case <-y.wake:
		case <-y.quit:
			quit = true
		}
		y.mu.Lock()
		r := y.next
		y.next = nil
		y.mu.Unlock()
		if r == nil { // only at the end; a last round may still have waiters that gave up
			return
		}
		r.err = guardPanic(func() error { return y.db.LogData(nil, pebble.Sync) })
		close(r.done)
		if quit {
			return
		}
	}
}

// stop ends the goroutine; nobody may join any more.
func (y *syncer) stop() {
	close(y.quit)
	<-y.done
}

// commit applies a batch. The caller holds the locks that order it; they may go
// as soon as commit returns. The batch is used up.
func (s *Store) commit(b *pebble.Batch, m *mark) error {
	if !s.o.NoSync {
		m.raise()
	}
	err := guardPanic(func() error { return s.db.Apply(b, pebble.NoSync) })
	if err != nil {
		// Nobody knows what of it is in the log, so the counts stay up and no
		// reader trusts what it sees there.
		s.disk.fail(err)
		return store.Errorf(store.Unavailable, "the write could not be applied: %w", err)
	}
	_ = b.Close()
	return nil
}

// durable waits until a committed write is synced. Giving up early leaves the
// outcome unknown; the counts go down whenever the sync has really happened.
func (s *Store) durable(ctx context.Context, m *mark) error {
	if s.o.NoSync {
		return nil
	}
	r := s.syncer.join()
	if err := s.await(ctx, r); err != nil {
		go func() {
			<-r.done
			if r.err == nil {
				m.lower()
			}
		}()
		return err
	}
	m.lower()
	return nil
}

// settle waits until everything is synced that was visible before the call. A
// reader calls it when a count was not zero; so does a write that found itself
// superseded, whose acknowledgement rests on what superseded it.
func (s *Store) settle(ctx context.Context) error {
	if s.o.NoSync {
		return nil
	}
	return s.await(ctx, s.syncer.join())
}

func (s *Store) await(ctx context.Context, r *round) error {
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.disk.troubled():
			return s.disk.trouble()
		}
	}
	if r.err != nil {
		s.disk.fail(r.err)
		return store.Errorf(store.Unavailable, "the log could not be synced: %w", r.err)
	}
	return nil
}
