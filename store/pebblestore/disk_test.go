package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// usageFS reports a disk of that size, with that much space free.
type usageFS struct {
	vfs.FS
	total uint64
	free  atomic.Uint64
}

func (u *usageFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: u.free.Load(), TotalBytes: u.total}, nil
}

// endlessFS reports the space that is free, or, while endless is set, more than enough.
type endlessFS struct {
	vfs.FS
	endless atomic.Bool
}

func (e *endlessFS) GetDiskUsage(dir string) (vfs.DiskUsage, error) {
	if e.endless.Load() {
		return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
	}
	return e.FS.GetDiskUsage(dir)
}

func TestReserve(t *testing.T) {
	fs := &usageFS{FS: vfs.NewMem(), total: 20_000} // a reserve of 1,000
	fs.free.Store(1 << 30)
	s := openMem(t, fs, Options{})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	require.NoError(t, s.Put(ctx, p, row("k", "v", 1)))

	fs.free.Store(600)
	s.disk.look()
	err := s.Put(ctx, p, row("l", "v", 1))
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "disk full: free at least 4")
	require.ErrorIs(t, err, store.ErrFull)
	require.False(t, store.OutcomeUnknown(err), "nothing was done")
	require.ErrorIs(t, s.WriteNode(ctx, p.Bucket, store.NodeID{1}, []byte("n")), store.ErrFull)
	copied, marker := row("m", "", 1), row("m", "", 2)
	copied.Value, marker.Value = cells.Copied(store.EntryCell(nil)), cells.Marker()
	require.ErrorIs(t, s.Put(ctx, p, copied), store.ErrFull, "a quarter is kept from moves")
	require.ErrorIs(t, s.Put(ctx, p, marker, copied), store.ErrFull)
	require.NoError(t, s.Put(ctx, p, marker), "deletes go on, also where the range moves")
	require.NoError(t, s.Put(storekit.MakingRoom(ctx), p, row("k", "w", 1)), "and puts that lead to deletions")
	require.NoError(t, s.Delete(ctx, p, []byte("k"), 2), "deletes go on")
	require.NoError(t, s.Remove(ctx, p, store.Bounds{}, 2))
	_, found, err := s.Get(ctx, p, []byte("k"))
	require.NoError(t, err, "reads go on")
	require.False(t, found)

	fs.free.Store(900)
	s.disk.look()
	require.ErrorIs(t, s.Put(ctx, p, row("l", "v", 1)), store.ErrFull)
	require.ErrorIs(t, s.Put(ctx, p, copied, row("l", "v", 1)), store.ErrFull)
	require.ErrorIs(t, s.Writable(), store.ErrFull)
	require.NoError(t, s.Put(ctx, p, copied, marker), "moves go on")
	require.NoError(t, s.WriteNode(ctx, p.Bucket, store.NodeID{1}, []byte("n")))
	use, known := s.Disk()
	require.True(t, known)
	require.Equal(t, []uint64{20_000, 900, 1000}, []uint64{use.Total, use.Free, use.Reserve})
	require.Positive(t, use.Store)

	fs.free.Store(200)
	s.disk.look()
	require.ErrorIs(t, s.Delete(ctx, p, []byte("k"), 3), store.ErrFull)
	require.ErrorIs(t, s.Put(ctx, p, marker), store.ErrFull)
	_, _, err = s.Get(ctx, p, []byte("k"))
	require.NoError(t, err)

	f, err := s.fs.Create(fs.PathJoin("data", "999999.sst"), compaction)
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.ErrorIs(t, err, errReserved, "a compaction leaves the last quarter alone")
	fs.free.Store(300)
	_, err = f.Write([]byte("x"))
	require.NoError(t, errors.Join(err, f.Close()))

	fs.free.Store(1 << 30)
	s.disk.look()
	require.NoError(t, s.Put(ctx, p, row("l", "v", 3)), "it recovers automatically")
}

// TestRefillsAndOpens fills a small disk through the store alone, first by puts,
// then by deletes, and opens it as it is, over and over.
func TestRefillsAndOpens(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	data := filepath.Join(dir, "data")
	ctx, p := t.Context(), newPartition()
	value, chance, acked := make([]byte, 20_000), rand.NewChaCha8([32]byte{1}), 0
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	long := make([]byte, 1000) // deletes that need space and give none
	for life := range 3 {
		s, err := openDirectory(data, Options{})
		require.NoError(t, err, "life %d", life)
		require.Len(t, content(t, s, p), acked)
		for ; err == nil; acked++ {
			_, _ = chance.Read(value)
			err = s.Put(ctx, p, store.Row{Key: key(acked), Value: value, Timestamp: 1})
		}
		acked--
		require.ErrorIs(t, err, store.Unavailable)
		require.Greater(t, acked, 500, "much of the disk is left unused")
		for err, n := error(nil), 0; err == nil && n < 3000; n++ {
			_, _ = chance.Read(long)
			err = s.Delete(ctx, p, long, 2)
		}
		require.NoError(t, s.Close())
	}
}

// faults injects an error into the writes that match, while it is on.
type faults struct {
	on    atomic.Bool
	err   error
	match func(op errorfs.Op) bool
	hits  atomic.Int64
}

func (f *faults) String() string { return "faults" }

func (f *faults) MaybeError(op errorfs.Op) error {
	if f.on.Load() && f.match(op) {
		f.hits.Add(1)
		return f.err
	}
	return nil
}

func anyWrite(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpCreate, errorfs.OpReuseForWrite:
		return true
	}
	return false
}

// TestDiskFull lets every write fail for lack of space, in the middle of puts:
// the calls under way answer Unavailable, reads of what was quiet go on, and
// when there is space again everything does. Nothing acknowledged is lost.
func TestDiskFull(t *testing.T) {
	f := &faults{err: syscall.ENOSPC, match: anyWrite}
	mem := vfs.NewCrashableMem()
	s := openMem(t, errorfs.Wrap(mem, f), Options{MemTableBytes: 256 << 10})
	ctx, p, quiet := t.Context(), newPartition(), newPartition()
	const quietRows = 20 // of which a few may share a lock with rows that are under way
	for i := range quietRows {
		require.NoError(t, s.Put(ctx, quiet, row(fmt.Sprint(i), "v", 1)))
	}

	for cycle := range 3 {
		f.on.Store(true)
		refused := make(chan error)
		for w := range 8 {
			go func() {
				for i := 0; ; i++ {
					if err := s.Put(ctx, p, row(fmt.Sprintf("%d-%d-%d", cycle, w, i), "v", 1)); err != nil {
						refused <- err
						return
					}
				}
			}()
		}
		for range 8 {
			err := <-refused
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorContains(t, err, "disk full: free at least")
		}
		// Those under way may have been written; later ones are refused.
		err := s.Put(ctx, p, row("late", "v", 1))
		require.ErrorIs(t, err, store.ErrFull)
		require.False(t, store.OutcomeUnknown(err))
		read := 0
		for i := range quietRows {
			_, found, err := s.Get(ctx, quiet, fmt.Append(nil, i))
			if err == nil {
				read++
				require.True(t, found)
				continue
			}
			require.ErrorIs(t, err, store.Unavailable)
		}
		require.Greater(t, read, quietRows/2)

		f.on.Store(false)
		put := func() error { return s.Put(ctx, p, row(fmt.Sprintf("after-%d", cycle), "v", 1)) }
		require.Eventually(t, func() bool { return put() == nil }, 30*time.Second, 10*time.Millisecond)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	s = openMem(t, after, Options{})
	defer s.Close()
	for cycle := range 3 {
		_, found, err := s.Get(ctx, p, fmt.Appendf(nil, "after-%d", cycle))
		require.NoError(t, err)
		require.True(t, found)
	}
}

// TestBrokenDisk lets the log fail for good, in its writes or syncs: no call
// hangs, writing ends with a message, and a new process finds everything that
// was acknowledged.
func TestBrokenDisk(t *testing.T) {
	kinds := map[string]errorfs.OpKind{"write": errorfs.OpFileWrite, "sync": errorfs.OpFileSyncData}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			f := &faults{err: syscall.EIO, match: func(op errorfs.Op) bool {
				return op.Kind == kind && filepath.Ext(op.Path) == ".log"
			}}
			mem := vfs.NewCrashableMem()
			s := openMem(t, errorfs.Wrap(mem, f), Options{})
			ctx, p := t.Context(), newPartition()
			require.NoError(t, s.Put(ctx, p, row("k", "v", 1)))
			f.on.Store(true)
			err := s.Put(ctx, p, row("l", "v", 1))
			require.Positive(t, f.hits.Load())
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorIs(t, err, syscall.EIO)
			f.on.Store(false)
			require.True(t, store.OutcomeUnknown(err), "the log may have it")
			err = s.Put(ctx, p, row("m", "v", 1))
			require.ErrorIs(t, err, store.ErrUnwritable, "the log can't be trusted any more")
			require.ErrorIs(t, err, store.Unavailable)
			require.False(t, store.OutcomeUnknown(err))
			require.ErrorContains(t, s.Close(), "restart the process")

			s = openMem(t, mem.CrashClone(vfs.CrashCloneCfg{}), Options{})
			defer s.Close()
			_, found, err := s.Get(ctx, p, []byte("k"))
			require.NoError(t, err)
			require.True(t, found)
		})
	}
}

// TestRealDiskFull fills a small real file system, as root.
func TestRealDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	data := filepath.Join(dir, "data")
	for name, endless := range map[string]bool{"refused early": false, "really full": true} {
		t.Run(name, func(t *testing.T) {
			fs := &endlessFS{FS: vfs.Default}
			fs.endless.Store(endless)
			o := Options{fs: fs, MemTableBytes: 1 << 20}
			s, err := openDirectory(data, o)
			require.NoError(t, err)
			ballast := filepath.Join(dir, "ballast")
			require.NoError(t, os.WriteFile(ballast, make([]byte, 32<<20), 0o600))
			ctx, p := context.Background(), newPartition()
			value := make([]byte, 10_000)
			acked, chance := 0, rand.NewChaCha8([32]byte{1})
			for ; acked < 5000; acked++ {
				_, _ = chance.Read(value) // Pebble compresses whatever has a pattern
				err = s.Put(ctx, p, store.Row{Key: fmt.Appendf(nil, "%06d", acked), Value: value, Timestamp: 1})
				if err != nil {
					break
				}
			}
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorContains(t, err, "disk full: free at least")
			require.Positive(t, acked)
			if !endless {
				// A compaction under way may use the space for deletes until it ends.
				require.Eventually(t, func() bool { return s.Delete(ctx, p, []byte("000000"), 2) == nil }, 30*time.Second,
					10*time.Millisecond, "deletes go on within the reserve")
			}
			require.NoError(t, os.Remove(ballast))
			require.Eventually(t, func() bool {
				err = s.Put(ctx, p, row("after", "v", 1))
				return err == nil
			}, 30*time.Second, 10*time.Millisecond)
			require.NoError(t, s.Close())

			s, err = openDirectory(data, o)
			require.NoError(t, err)
			for i := 1; i < acked; i++ {
				_, found, err := s.Get(ctx, p, fmt.Appendf(nil, "%06d", i))
				require.NoError(t, err)
				require.True(t, found, "row %d of %d is lost", i, acked)
			}
			require.NoError(t, errors.Join(s.Remove(ctx, p, store.Bounds{}, 9), s.Close()))
			require.NoError(t, os.RemoveAll(data))
		})
	}
}
