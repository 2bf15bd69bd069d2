package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// TestOpenFailsAtEachStep lets each of the steps fail that make a new directory, up
// to Pebble's own: Open says so, and can be called again.
func TestOpenFailsAtEachStep(t *testing.T) {
	for step := int64(1); ; step++ {
		var n atomic.Int64
		var pebbles atomic.Bool
		failed := ""
		f := &faults{err: syscall.EIO, match: func(op errorfs.Op) bool {
			switch filepath.Base(op.Path) {
			case "data", "LOCK", ".", FormatFile, FormatFile + ".new":
			default:
				pebbles.Store(true)
			}
			if pebbles.Load() || op.Kind == errorfs.OpGetDiskUsage || n.Add(1) != step {
				return false
			}
			failed = fmt.Sprintf("step %d, %d %s", step, op.Kind, op.Path)
			return true
		}}
		mem := vfs.NewMem()
		f.on.Store(true)
		s, err := openDirectory("data", Options{fs: errorfs.Wrap(mem, f), MemTableBytes: 1 << 20})
		f.on.Store(false)
		if failed == "" {
			require.NoError(t, errors.Join(err, s.Close()))
			require.Greater(t, step, int64(8))
			return
		}
		require.ErrorIs(t, err, store.Unavailable, failed)
		require.ErrorContains(t, err, "open data", failed)
		require.NoError(t, openMem(t, mem, Options{}).Close(), failed)
	}
}

// TestFormatCannotBeRead: a marker that can't be opened or read is not taken for a
// missing one, nor for a damaged one.
func TestFormatCannotBeRead(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpOpen, errorfs.OpFileRead} {
		mem := vfs.NewMem()
		require.NoError(t, openMem(t, mem, Options{}).Close())
		f := &faults{err: syscall.EIO, match: func(op errorfs.Op) bool {
			return op.Kind == kind && strings.HasSuffix(op.Path, FormatFile)
		}}
		f.on.Store(true)
		_, err := openDirectory("data", Options{fs: errorfs.Wrap(mem, f)})
		require.ErrorIs(t, err, syscall.EIO)
		require.ErrorIs(t, err, store.Unavailable)
		require.Positive(t, f.hits.Load())
	}
}

// TestFormatIsDurable: the marker's own name is synced, or Open fails.
func TestFormatIsDurable(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpOpenDir, errorfs.OpFileSync, errorfs.OpRename} {
		mem := vfs.NewMem()
		named := false
		f := &faults{err: os.ErrPermission, match: func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, ".new") {
				named = true
				return kind == errorfs.OpRename
			}
			return named && op.Kind == kind
		}}
		f.on.Store(true)
		_, err := openDirectory("data", Options{fs: errorfs.Wrap(mem, f)})
		require.ErrorIs(t, err, os.ErrPermission, "%v", kind)
	}
}

// TestForeignQueueEntry: what the collector can't read it leaves, and says so.
func TestForeignQueueEntry(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{})
	defer s.Close()
	require.NoError(t, s.db.Set([]byte{tableQueue, 1, 2}, nil, pebble.NoSync))
	err := s.collect(10)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "710102")
	v, closer, err := s.db.Get([]byte{tableQueue, 1, 2})
	require.NoError(t, err)
	require.Empty(t, v)
	require.NoError(t, closer.Close())
}

// TestForeignRowAmongMany: a batch of many rows meets one that has no valid form.
func TestForeignRowAmongMany(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{})
	defer s.Close()
	p := newPartition()
	var rows []store.Row
	for i := range 2 * wideRows {
		rows = append(rows, row(fmt.Sprintf("%03d", i), "v", 5))
	}
	require.NoError(t, s.Put(t.Context(), p, rows...))
	foreign := []byte{9, 9}
	require.NoError(t, s.db.Set(rowKey(p, []byte("007")), foreign, pebble.Sync))
	for i := range rows {
		rows[i].Timestamp = 4
	}
	err := s.Put(t.Context(), p, rows...)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "007")
	v, err := s.read(rowKey(p, []byte("007")))
	require.NoError(t, err)
	require.Equal(t, foreign, v, "nothing was done")
	require.Zero(t, s.locks.unsynced.Load())
}

// endsLater is a context that has ended when it is asked for the second time.
type endsLater struct {
	context.Context
	asked atomic.Int64
}

func (e *endsLater) Err() error {
	if e.asked.Add(1) > 1 {
		return context.Canceled
	}
	return nil
}

// TestScansEndWithTheirContext: reads that find nothing for long look whether anybody
// still waits for them.
func TestScansEndWithTheirContext(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{MemTableBytes: 8 << 20})
	defer s.Close()
	p := newPartition()
	b := s.db.NewBatch()
	for i := range checkEvery + 1 {
		require.NoError(t, b.Set(rowKey(p, fmt.Appendf(nil, "%06d", i)), tombstoneValue(1, 1), nil))
		require.NoError(t, b.Set(nodeKey(p.Bucket, store.NodeID{byte(i >> 8), byte(i)}), nil, nil))
	}
	require.NoError(t, s.db.Apply(b, pebble.Sync))
	for name, scan := range map[string]func(ctx context.Context) error{
		"Partitions": func(ctx context.Context) error {
			_, err := s.Partitions(ctx, store.Partition{}, 10)
			return err
		},
		"Slice": func(ctx context.Context) error {
			_, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 10})
			return err
		},
		"ScanNodes": func(ctx context.Context) error {
			_, err := s.ScanNodes(ctx, p.Bucket, store.NodeID{}, checkEvery+1)
			return err
		},
	} {
		require.ErrorIs(t, scan(&endsLater{Context: t.Context()}), context.Canceled, name)
		require.NoError(t, scan(t.Context()), name)
	}
	require.ErrorIs(t, s.Remove(&endsLater{Context: t.Context()}, p, store.Bounds{}, 9), context.Canceled)
	require.Empty(t, s.removals.of(p), "nothing was done")
	require.NoError(t, s.Remove(t.Context(), p, store.Bounds{}, 9))
}

// guarded is a guardFS of an open store over memory, within a bubble of synctest.
func guarded() (*guardFS, *vfs.MemFS) {
	mem := vfs.NewMem()
	g := &guardFS{FS: mem, disk: newDisk(mem, "", slog.New(slog.DiscardHandler))}
	g.open.Store(true)
	return g, mem
}

// TestCompactionsWait: a compaction waits while writes wait for space, or after it has
// met its own limit, and no longer than the store goes on.
func TestCompactionsWait(t *testing.T) {
	for name, c := range map[string]struct{ hold, free func(d *disk) }{
		"parked":         {func(d *disk) { d.park("f", syscall.ENOSPC) }, func(d *disk) { d.unpark() }},
		"resting":        {func(d *disk) { d.rest = time.Now().Add(time.Minute) }, func(*disk) { time.Sleep(time.Minute) }},
		"parked, ending": {func(d *disk) { d.park("f", syscall.ENOSPC) }, func(d *disk) { close(d.ending) }},
		"parked, given up": {func(d *disk) { d.park("f", syscall.ENOSPC) }, func(d *disk) {
			d.abandon()
			d.abandon()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, mem := guarded()
				c.hold(g.disk)
				done := make(chan error, 1)
				go func() {
					_, err := g.Create("out.sst", compaction)
					done <- err
				}()
				time.Sleep(30 * time.Second)
				synctest.Wait()
				require.Empty(t, done)
				_, err := mem.Stat("out.sst")
				require.ErrorIs(t, err, os.ErrNotExist)
				c.free(g.disk)
				require.NoError(t, <-done)
			})
		})
	}
}

// TestCompactionsRestAtTheirLimit: one that met its limit lets the next one wait.
func TestCompactionsRestAtTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		usage := &usageFS{FS: vfs.NewMem(), total: 20_000}
		usage.free.Store(100)
		d := newDisk(usage, "", slog.New(slog.DiscardHandler))
		require.ErrorIs(t, d.admitCompaction(1), errReserved)
		begin := time.Now()
		d.waitForSpace()
		require.GreaterOrEqual(t, time.Since(begin), restEvery)
		usage.free.Store(251)
		require.NoError(t, d.admitCompaction(1))
		require.ErrorIs(t, d.admitCompaction(2), errReserved)
	})
}

// TestTroubleLastsAsLongAsItsCauses: writes go on when the last one that waited for
// space has found it, and never again after a failure.
func TestTroubleLastsAsLongAsItsCauses(t *testing.T) {
	g, _ := guarded()
	d := g.disk
	troubled := func() bool {
		select {
		case <-d.troubled():
			return true
		default:
			return false
		}
	}
	require.False(t, troubled())
	d.park("a", syscall.ENOSPC)
	d.park("b", syscall.ENOSPC)
	require.True(t, troubled())
	d.unpark()
	require.True(t, troubled(), "b still waits")
	d.unpark()
	require.False(t, troubled())

	d.park("a", syscall.ENOSPC)
	require.ErrorContains(t, d.trouble(), "disk full")
	d.fail(errors.New("the first cause"))
	d.fail(errors.New("another"))
	d.unpark()
	require.True(t, troubled())
	require.ErrorContains(t, d.trouble(), "the first cause")
}
