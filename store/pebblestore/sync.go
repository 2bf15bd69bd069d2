package pebblestore

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// A syncer waits until applied batches are in a synced log, and then tells their writers. One goroutine does this for
// all writers, for two reasons:
//   - A writer can give up when its context ends, or when the log waits for disk space.
//   - The counts of unsynced writes (locks.go) go down when the sync has happened, even if the writers have given up.
//
// A batch that ApplyNoSyncWait has applied is visible and ordered at once, and part of the next sync, which Pebble
// makes for several batches together.
type syncer struct {
	*queue[*ticket]
}

// A ticket stands for one batch that is applied, and so visible, but perhaps not yet synced. The writer of the batch
// waits for the ticket.
type ticket struct {
	batch *pebble.Batch
	mark  *mark      // the counts to lower after the sync; may be nil
	group *group     // the group of the batch; nil if a writer waits for err
	err   chan error // receives the outcome, if there is no group
}

var tickets = sync.Pool{New: func() any { return &ticket{err: make(chan error, 1)} }}

// newSyncer returns a syncer, which waits in its own goroutine until applied batches are synced. If a sync fails, the
// syncer calls the function failed with the error.
func newSyncer(failed func(error)) syncer {
	// An earlier version synced in this goroutine, with one empty record for all applied batches. With 64 writers it
	// reached 0.55 to 0.68 of the speed of bare Pebble, since each sync began only when the goroutine had been
	// scheduled again. Puts of few rows, the most frequent writes, come as groups (group.go), with one ticket per
	// group.
	return syncer{newQueue(nil, func(list []*ticket) {
		for _, t := range list {
			t.wait(failed)
		}
	})}
}

// add queues the batch b, which is applied but not yet synced, and returns the ticket for which a writer can wait. m
// has the locks of the write; their counts of unsynced writes go down after the sync. c is the group of puts that share
// the batch. Both m and c may be nil. The syncer closes the batch.
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

// commit applies the batch b, which makes its writes visible, but does not wait for the sync. The caller must not use b
// any more. The caller holds m, the locks that order the batch, and may release them when commit returns.
// directory.await waits with the returned ticket until b is synced. With Options.NoSync the ticket is nil.
func (s *directory) commit(b *pebble.Batch, m *mark) (*ticket, error) {
	if err := s.applyMarked(b, m); err != nil {
		return nil, err
	}
	if s.o.NoSync {
		return nil, b.Close()
	}
	return s.syncer.add(b, m, nil), nil
}

// applyMarked applies the batch b, which makes its writes visible. First it raises the counts of unsynced writes beside
// the locks m, so that readers wait for the sync. With Options.NoSync it leaves the counts unchanged.
func (s *directory) applyMarked(b *pebble.Batch, m *mark) error {
	if s.o.NoSync {
		return s.apply(func() error { return s.db.Apply(b, pebble.NoSync) })
	}
	if m != nil {
		m.raise()
	}
	return s.apply(func() error { return s.db.ApplyNoSyncWait(b, pebble.Sync) })
}

// apply runs commit, a function that writes to Pebble, and returns its error. After an error all writing to the store
// ends, since the log may contain a part of the write.
func (s *directory) apply(commit func() error) error {
	// The counts of unsynced writes stay above zero then, so that readers do not trust the rows that they see.
	if err := guardPanic(commit); err != nil {
		s.disk.fail(err)
		return store.Errorf(store.Unavailable, "the write could not be applied: %w", err)
	}
	return nil
}

// await waits until the batch of the ticket t is synced, and returns the error of the sync. If ctx ends first, or the
// store can't write any more, await returns the reason, and the outcome is unknown. If t is nil, await returns nil at
// once.
func (s *directory) await(ctx context.Context, t *ticket) error {
	if t == nil {
		return nil
	}
	ended, err := s.outcome(ctx, t.err)
	if ended {
		tickets.Put(t)
	}
	return err
}

// outcome waits for the outcome of a write, which is sent to the channel c. There are two cases:
//   - If ended is true, the write has ended, and err is its outcome.
//   - If ended is false, ctx has ended or the store can't write any more. err says why, and the outcome is unknown.
func (s *directory) outcome(ctx context.Context, c <-chan error) (ended bool, err error) {
	select {
	case err := <-c:
		return true, err
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.disk.troubled():
		return false, s.disk.trouble()
	}
}

// settle waits until everything is synced that was visible before the call. A reader calls it if it may have seen
// writes that were not yet synced. A write that has lost to a stored row calls it, too.
func (s *directory) settle(ctx context.Context) error {
	// Such a write is acknowledged because of the stored row.
	if s.o.NoSync {
		return nil
	}
	select {
	case <-s.disk.troubled(): // no sync may ever come
		return s.disk.trouble()
	default:
	}
	// All readers that come during one sync share the next sync. So Pebble does one sync for readers at a time, however
	// many readers there are. And no reader waits within Pebble, where neither its context nor a broken disk would end
	// the wait.
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

// syncNow syncs all writes that are visible when it is called, and returns when the sync has ended.
func (s *directory) syncNow() error {
	b := s.db.NewBatch()
	_ = b.LogData(nil, nil)
	if err := s.apply(func() error { return s.db.Apply(b, pebble.Sync) }); err != nil {
		return err
	}
	return b.Close()
}
