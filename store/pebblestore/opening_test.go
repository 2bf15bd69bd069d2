package pebblestore

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// quietly fails the test if what was logged is more than a few lines.
func quietly(t *testing.T, log *bytes.Buffer) {
	t.Helper()
	require.Less(t, bytes.Count(log.Bytes(), []byte("\n")), 10, "the log is flooded:\n%s", log)
}

// noMoreGoroutines waits until there are no more than before.
func noMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	for begun := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			stacks := make([]byte, 1<<20)
			t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestOpenOnFullDisk lets the disk be full from one after another of the changes
// on that opening makes to it. Open must answer, keep nothing running, hold nothing, and
// have taken nothing away: from what is then on disk, or was synced,
// everything acknowledged comes back.
func TestOpenOnFullDisk(t *testing.T) {
	r := seed.New(t)
	o := Options{MemTableBytes: 256 << 10, CacheBytes: 1 << 20}
	mem := vfs.NewCrashableMem()
	s := openMem(t, mem, o)
	ctx, p := t.Context(), newPartition()
	const rows = 40
	value := make([]byte, 10_000)
	for i := range rows { // more than a memtable: some lies in tables, some in logs
		for k := range value {
			value[k] = byte(r.Uint32())
		}
		require.NoError(t, s.Put(ctx, p, store.Row{Key: fmt.Appendf(nil, "%06d", i), Value: value, Timestamp: 1}))
	}
	killed := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	complete := func(fs vfs.FS) {
		s := openMem(t, fs, o)
		require.Len(t, content(t, s, p), rows)
		require.NoError(t, s.Close())
	}

	changes, from := atomic.Int64{}, int64(0)
	f := &faults{err: syscall.ENOSPC, match: func(op errorfs.Op) bool {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && changes.Add(1) > from
	}}
	f.on.Store(true)
	refused := 0
	for ; ; from += int64(1 + r.IntN(5)) { // another choice each time
		fs := killed.CrashClone(vfs.CrashCloneCfg{})
		changes.Store(0)
		before := runtime.NumGoroutine()
		var log bytes.Buffer
		o.fs, o.Logger = errorfs.Wrap(fs, f), slog.New(slog.NewTextHandler(&log, nil))
		s, err := openDirectory("data", o)
		if err == nil {
			f.on.Store(false)
			require.NoError(t, s.Close())
			require.Greater(t, refused, 10)
			break
		}
		refused++
		require.ErrorIs(t, err, store.Unavailable, "change %d", from)
		require.ErrorContains(t, err, "disk full: free at least ")
		require.ErrorContains(t, err, " bytes under data, then start again")
		quietly(t, &log)
		noMoreGoroutines(t, before)
		if r.IntN(2) == 0 {
			fs = fs.CrashClone(vfs.CrashCloneCfg{})
		}
		complete(fs)
	}
	t.Logf("refused at %d changes", refused)
}

// TestOpenOnRealFullDisk kills a store, fills its small real disk, and opens it.
func TestOpenOnRealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	data, ballast := filepath.Join(dir, "data"), filepath.Join(dir, "ballast")
	var log bytes.Buffer
	fs := &endlessFS{FS: vfs.Default}
	fs.endless.Store(true)
	o := Options{fs: fs, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := openDirectory(data, o)
	require.NoError(t, err)
	ctx, p := t.Context(), newPartition()
	value, chance, acked := make([]byte, 10_000), rand.NewChaCha8([32]byte{1}), 0
	for ; acked < 1500; acked++ { // all of it stays in the log
		_, _ = chance.Read(value)
		require.NoError(t, s.Put(ctx, p, store.Row{Key: fmt.Appendf(nil, "%06d", acked), Value: value, Timestamp: 1}))
	}
	require.NoError(t, s.Close())
	fs.endless.Store(false)
	free := func() uint64 {
		u, err := vfs.Default.GetDiskUsage(dir)
		require.NoError(t, err)
		return u.AvailBytes
	}
	fill := func(leave uint64) {
		require.NoError(t, os.RemoveAll(ballast))
		require.NoError(t, os.WriteFile(ballast, make([]byte, free()-leave), 0o600))
	}

	number := regexp.MustCompile(`free at least (\d+) bytes under ` + regexp.QuoteMeta(data) + `, then start again`)
	var missing uint64
	for _, leave := range []uint64{0, 0, 4 << 20, 12 << 20} {
		fill(leave)
		was, before := free(), runtime.NumGoroutine()
		_, err := openDirectory(data, o)
		require.ErrorIs(t, err, store.Unavailable, "with %d bytes free", leave)
		found := number.FindStringSubmatch(err.Error())
		require.NotNil(t, found, "%v", err)
		missing, err = strconv.ParseUint(found[1], 10, 64)
		require.NoError(t, err)
		t.Logf("with %8d bytes free, %8d more are asked for", leave, missing)
		require.InDelta(t, was, free(), 64<<10, "a failed opening eats up the disk")
		quietly(t, &log)
		noMoreGoroutines(t, before)
	}

	fill(free() + missing) // what was free, and what the error asked for
	s, err = openDirectory(data, o)
	require.NoError(t, err)
	require.Len(t, content(t, s, p), acked)
	require.NoError(t, s.Close())
}
