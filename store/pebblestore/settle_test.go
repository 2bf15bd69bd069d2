package pebblestore

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// logSync reports whether an operation syncs the log.
func logSync(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return filepath.Ext(op.Path) == ".log"
	}
	return false
}

// moreThanTheLogQueues is beyond the number of syncs that Pebble's log takes before
// it lets the next one wait: 4096.
const moreThanTheLogQueues = 5000

// inTime fails the test if f goes on and on.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "it hangs", "%s", what)
	}
}

// settled are the reads that wait until what they saw is synced.
func settled(s *directory, p store.Partition) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			_, _, err := s.Get(ctx, p, []byte("k"))
			return err
		},
		"Slice": func(ctx context.Context) error {
			_, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 10})
			return err
		},
		"Partitions": func(ctx context.Context) error {
			_, err := s.Partitions(ctx, store.Partition{}, 10)
			return err
		},
		// It finds what is there already, and acknowledges it.
		"an older Put": func(ctx context.Context) error { return s.Put(ctx, p, row("k", "v", 1)) },
	}
}

// TestFailedSyncEndsCalls: after a failed sync no call waits for one that never comes,
// however many there are and whether they have a time limit or not.
func TestFailedSyncEndsCalls(t *testing.T) {
	f := &faults{err: syscall.EIO, match: logSync}
	s := openMem(t, errorfs.Wrap(vfs.NewMem(), f), Options{})
	ctx, p, quiet := context.Background(), newPartition(), newPartition()
	require.NoError(t, s.Put(ctx, p, row("k", "v", 1)))
	require.NoError(t, s.Put(ctx, quiet, row("k", "v", 1)))
	require.NoError(t, s.Writable())
	f.on.Store(true)
	require.ErrorIs(t, s.Put(ctx, p, row("k", "w", 2)), syscall.EIO)
	for name, read := range settled(s, p) {
		inTime(t, name, func() {
			for range moreThanTheLogQueues {
				err := read(ctx)
				if !(store.KindOf(err) == store.Unavailable) {
					require.FailNow(t, "not refused", "%s: %v", name, err)
				}
			}
			require.ErrorIs(t, read(ctx), syscall.EIO, name)
		})
	}
	writes := map[string]error{
		"Put": s.Put(
			ctx, p, row("l", "v", 1),
		),
		"Delete":    s.Delete(ctx, p, []byte("l"), 1),
		"Remove":    s.Remove(ctx, p, store.Bounds{}, 9),
		"WriteNode": s.WriteNode(ctx, p.Bucket, store.NodeID{1}, []byte("n")),
		"Writable":  s.Writable(),
	}
	for name, err := range writes {
		require.ErrorIs(t, err, store.Unavailable, name)
		require.ErrorIs(t, err, syscall.EIO, name)
		require.ErrorContains(t, err, "restart the process", name)
	}
	_, found, err := s.Get(ctx, quiet, []byte("k"))
	require.NoError(t, err, "what is synced can be read")
	require.True(t, found)
	inTime(t, "Close", func() { require.ErrorContains(t, s.Close(), "restart the process") })
}

// hangs lets operations that match wait, while it is on.
type hangs struct {
	mu    sync.RWMutex // held by who makes them wait
	match func(op errorfs.Op) bool
}

func (h *hangs) String() string { return "hangs" }

func (h *hangs) MaybeError(op errorfs.Op) error {
	if h.match(op) {
		h.mu.RLock()
		defer h.mu.RUnlock()
	}
	return nil
}

// TestReadsGiveUpWhileASyncHangs: reads wait for a sync until their context ends at
// most, however many have waited before, and share the syncs that they wait for.
func TestReadsGiveUpWhileASyncHangs(t *testing.T) {
	h := &hangs{match: logSync}
	s := openMem(t, errorfs.Wrap(vfs.NewMem(), h), Options{})
	defer s.Close()
	p := newPartition()
	require.NoError(t, s.Put(t.Context(), p, row("k", "v", 1)))
	h.mu.Lock()
	put := make(chan error, 1)
	go func() { put <- s.Put(context.Background(), p, row("k", "w", 2)) }()
	require.Eventually(t, func() bool { return s.locks.unsynced.Load() > 0 }, time.Minute, time.Millisecond)
	for name, read := range settled(s, p) {
		inTime(t, name, func() {
			var all sync.WaitGroup
			for range moreThanTheLogQueues {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					if err := read(ctx); store.KindOf(err) != store.Timeout {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
		})
	}
	require.Empty(t, put)
	require.NoError(t, s.Writable())
	logged := s.db.Metrics().WAL.BytesIn
	h.mu.Unlock()
	require.NoError(t, <-put)
	for name, read := range settled(s, p) {
		require.NoError(t, read(t.Context()), name)
	}
	require.Less(t, s.db.Metrics().WAL.BytesIn-logged, uint64(1000), "a sync for each of the reads")
}
