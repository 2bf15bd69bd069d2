package pebblestore

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// A syncer waits until applied batches are in a synced log.
//
// Pebble groups the syncs: a batch applied by ApplyNoSyncWait is visible and ordered at once,
// and part of the next sync. One goroutine waits for the syncs of all writers, for two reasons.
// A writer can give up, when its context ends or when the log waits for disk space. And the
// counts of unsynced writes (locks.go) go down when the sync has happened, also for writers
// that have given up.
//
// An earlier version synced from this goroutine, one empty record for all applied batches. With
// 64 writers it reached 0.55 to 0.68 of bare Pebble, since each round began only when this
// goroutine had been scheduled again. Puts of few rows, the most frequent ones, come as groups
// (group.go): one ticket each.
type syncer struct {
	*queue[*ticket]
}

// A ticket is one applied batch that is not yet known to be synced.
type ticket struct {
	batch *pebble.Batch
	mark  *mark      // may be nil
	group *group     // whose batch it is; nil if a writer waits for err
	err   chan error // used without a group
}

var tickets = sync.Pool{New: func() any { return &ticket{err: make(chan error, 1)} }}

// newSyncer starts a syncer, which calls failed when a sync fails.
func newSyncer(failed func(error)) syncer {
	return syncer{newQueue(nil, func(list []*ticket) {
		for _, t := range list {
			t.wait(failed)
		}
	})}
}

// add queues an applied batch, which the syncer closes.
func (y syncer) add(b *pebble.Batch, m *mark, c *group) *ticket {
	t := tickets.Get().(*ticket)
	t.batch, t.mark, t.group = b, m, c
	y.queue.add(t)
	return t
}

func (t *ticket) wait(failed func(error)) {
	err := t.batch.SyncWait()
	if err != nil {
		failed(err)
		err = store.Errorf(store.Unavailable, "the log could not be synced: %w", err)
	} else {
		if t.mark != nil {
			t.mark.lower()
		}
		_ = t.batch.Close()
	}
	c := t.group
	t.batch, t.mark, t.group = nil, nil, nil
	if c == nil {
		t.err <- err
		return
	}
	tickets.Put(t)
	c.done(err)
}

// commit applies a batch and uses it up. The caller holds the locks that order it, and may
// release them when commit returns. The ticket is for await; it is nil without syncs.
func (s *Store) commit(b *pebble.Batch, m *mark) (*ticket, error) {
	if err := s.applyMarked(b, m); err != nil {
		return nil, err
	}
	if s.o.NoSync {
		return nil, b.Close()
	}
	return s.syncer.add(b, m, nil), nil
}

// applyMarked applies a batch and raises the counts of unsynced writes.
func (s *Store) applyMarked(b *pebble.Batch, m *mark) error {
	if s.o.NoSync {
		return s.apply(func() error { return s.db.Apply(b, pebble.NoSync) })
	}
	if m != nil {
		m.raise()
	}
	return s.apply(func() error { return s.db.ApplyNoSyncWait(b, pebble.Sync) })
}

// apply runs a commit. If it fails, the log may have a part of it: the counts of unsynced
// writes stay up, so that readers don't trust what they see, and all writing ends.
func (s *Store) apply(commit func() error) error {
	if err := guardPanic(commit); err != nil {
		s.disk.fail(err)
		return store.Errorf(store.Unavailable, "the write could not be applied: %w", err)
	}
	return nil
}

// await waits until a batch is synced.
func (s *Store) await(ctx context.Context, t *ticket) error {
	if t == nil {
		return nil
	}
	ended, err := s.outcome(ctx, t.err)
	if ended {
		tickets.Put(t)
	}
	return err
}

// outcome waits for the outcome of a write. It returns false and the reason where it gives up
// earlier; the outcome is unknown then.
func (s *Store) outcome(ctx context.Context, c <-chan error) (ended bool, err error) {
	select {
	case err := <-c:
		return true, err
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.disk.troubled():
		return false, s.disk.trouble()
	}
}

// settle waits until everything is synced that was visible before the call. A reader calls it
// if a count of unsynced writes was not zero. So does a write that lost to a present row: it
// is acknowledged because of that row.
func (s *Store) settle(ctx context.Context) error {
	if s.o.NoSync {
		return nil
	}
	select {
	case <-s.disk.troubled(): // no sync may ever come
		return s.disk.trouble()
	default:
	}
	// All readers that come during one sync share the next one. So Pebble has one sync for
	// readers to do at a time, however many they are. And no reader waits within Pebble, where
	// neither its context nor a broken disk would end the wait.
	b := s.barriers.Join(func(*struct{}) {}, func(work func()) bool {
		s.background.Go(work) // Close waits for it once all callers have left
		return true
	}, func(*struct{}) error { return s.syncNow() })
	select {
	case <-b.Done:
		return b.Err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.disk.troubled():
		return s.disk.trouble()
	}
}

// syncNow syncs everything that is visible.
func (s *Store) syncNow() error {
	b := s.db.NewBatch()
	_ = b.LogData(nil, nil)
	if err := s.apply(func() error { return s.db.Apply(b, pebble.Sync) }); err != nil {
		return err
	}
	return b.Close()
}
