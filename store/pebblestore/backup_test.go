package pebblestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// TestBackupUnderLoad takes backups while many put one key after the other. Each backup
// has of each of them a first part without holes, which reaches to what was acknowledged
// before the backup began, and is restored to just that.
func TestBackupUnderLoad(t *testing.T) {
	r := seed.New(t)
	// Small memtables: logs are rotated, and made of old ones, all the time.
	o := Options{MemTableBytes: 256 << 10, CacheBytes: 1 << 20, fs: vfs.NewMem()}
	s, err := openDirectory("data", o)
	require.NoError(t, err)
	const writers = 8
	var acknowledged [writers]atomic.Int64
	partitions := make([]store.Partition, writers)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for w := range writers {
		p, size := newPartition(), 1+r.IntN(400)
		partitions[w] = p
		work.Go(func() {
			for i := int64(1); ; i++ {
				err := s.Put(ctx, p, row(fmt.Sprintf("%08d", i), strings.Repeat("v", size), store.Timestamp(i)))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				acknowledged[w].Store(i)
			}
		})
	}
	const backups = 8
	var before [backups][writers]int64
	name := func(i int) string { return fmt.Sprint("backup", i) }
	for i := range backups {
		for acknowledged[i%writers].Load() < int64(150*(i+1)) && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		for w := range writers {
			before[i][w] = acknowledged[w].Load()
		}
		size, err := s.Backup(ctx, name(i), nil)
		require.NoError(t, err)
		require.Positive(t, size.Files)
		require.Positive(t, size.Bytes)
	}
	stop()
	work.Wait()
	require.NoError(t, s.Close())
	for i := range backups {
		to := fmt.Sprint("restored", i)
		size, err := Restore(t.Context(), name(i), to, o, nil)
		require.NoError(t, err, "backup %d", i)
		require.Positive(t, size.Files)
		s, err := openDirectory(to, o)
		require.NoError(t, err)
		for w, p := range partitions {
			n := int64(0)
			b := store.Bounds{}
			for more := true; more; {
				page, err := s.Slice(t.Context(), p, b, store.SliceOptions{Limit: 1000})
				require.NoError(t, err)
				for _, x := range page.Rows {
					n++
					require.Equal(t, fmt.Sprintf("%08d", n), string(x.Key), "backup %d of writer %d has a hole", i, w)
				}
				if more = page.More; more {
					b = store.Bounds{Start: page.Rows[len(page.Rows)-1].Key, StartExclusive: true}
				}
			}
			require.GreaterOrEqual(t, n, before[i][w], "backup %d lacks what writer %d was acknowledged before", i, w)
		}
		require.NoError(t, s.Close())
	}
}

// reads calls a function before one of the reads of logs.
type reads struct {
	on     atomic.Bool
	number int64
	n      atomic.Int64
	call   func()
}

func (r *reads) String() string { return "reads" }

func (r *reads) MaybeError(op errorfs.Op) error {
	if r.on.Load() && op.Kind == errorfs.OpFileRead && isLog(op.Path) && r.n.Add(1) == r.number {
		r.call()
	}
	return nil
}

// TestBackupOfALogThatGrows has a log grow between two reads of its copy. The log was made
// of an old one, so what is behind its end at the first read is old, and what is there at
// the second is new.
func TestBackupOfALogThatGrows(t *testing.T) {
	mem := vfs.NewMem()
	hook := &reads{number: 2}
	o := Options{MemTableBytes: 256 << 10, CacheBytes: 1 << 20}
	s := openMem(t, errorfs.Wrap(mem, hook), o)
	ctx, p := t.Context(), newPartition()
	n := 0
	put := func(bytes int) {
		for end := n + bytes/1000; n < end; n++ {
			require.NoError(t, s.Put(ctx, p, row(fmt.Sprintf("%06d", n), strings.Repeat("v", 1000), 1)))
		}
	}
	put(2 << 20) // some memtables
	require.NoError(t, s.db.Flush())
	put(10 << 10)
	acknowledged := n
	hook.call = func() { put(150 << 10) }
	hook.on.Store(true)
	_, err := s.Backup(ctx, "backup", nil)
	require.NoError(t, err)
	hook.on.Store(false)
	require.Greater(t, n, acknowledged, "the log was read at once: the test is of no use")
	require.NoError(t, s.Close())

	o.fs = mem
	_, err = Restore(ctx, "backup", "restored", o, nil)
	require.NoError(t, err)
	s, err = openDirectory("restored", o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(content(t, s, p)), acknowledged)
	require.NoError(t, s.Close())
}

// TestBackupIsDurable loses power at once after a backup.
func TestBackupIsDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := openMem(t, mem, Options{})
	ctx, p := t.Context(), newPartition()
	for i := range 100 {
		require.NoError(t, s.Put(ctx, p, row(fmt.Sprintf("%03d", i), "v", 1)))
	}
	var told store.Size
	size, err := s.Backup(ctx, "backup", func(now store.Size) { told = now })
	require.NoError(t, err)
	require.Equal(t, size, told)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	_, err = Restore(ctx, "backup", "restored", Options{fs: after}, nil)
	require.NoError(t, err)
	again := after.CrashClone(vfs.CrashCloneCfg{})
	s, err = openDirectory("restored", Options{fs: again})
	require.NoError(t, err)
	require.Len(t, content(t, s, p), 100)
	require.NoError(t, s.Close())
}

func TestBackupRefuses(t *testing.T) {
	top := t.TempDir()
	data := filepath.Join(top, "data")
	s, err := openDirectory(data, Options{})
	require.NoError(t, err)
	ctx := t.Context()
	refused := func(dir, says string) {
		t.Helper()
		_, err := s.Backup(ctx, dir, nil)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, says)
	}
	refused(top, "exists")
	refused(filepath.Join(data, "backup"), "within the data directory")
	refused(filepath.Join(top, "none", "backup"), "is no directory")
	require.NoError(t, os.Mkdir(filepath.Join(top, "b.partial"), 0o700))
	refused(filepath.Join(top, "b"), "did not end")

	s.backups.Lock()
	_, err = s.Backup(ctx, filepath.Join(top, "c"), nil)
	require.ErrorIs(t, err, store.Conflict)
	s.backups.Unlock()

	ended, stop := context.WithCancel(ctx)
	stop()
	_, err = s.Backup(ended, filepath.Join(top, "d"), nil)
	require.ErrorIs(t, err, store.Timeout)
	require.NoError(t, s.Close())
	_, err = s.Backup(ctx, filepath.Join(top, "d"), nil)
	require.ErrorIs(t, err, store.Unavailable)
	left, err := filepath.Glob(filepath.Join(top, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(top, "b.partial"), data}, left)
}

// TestBackupToAFullDisk ends the backup, not the store's writes.
func TestBackupToAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	f := &faults{err: syscall.ENOSPC, match: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileWrite && strings.HasPrefix(op.Path, "backup")
	}}
	f.on.Store(true)
	s := openMem(t, errorfs.Wrap(mem, f), Options{})
	ctx, p := t.Context(), newPartition()
	require.NoError(t, s.Put(ctx, p, row("a", "v", 1)))
	_, err := s.Backup(ctx, "backup", nil)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "disk full")
	require.Positive(t, f.hits.Load())
	for _, name := range []string{"backup", "backup.partial"} {
		_, err = mem.Stat(name)
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	require.NoError(t, s.Put(ctx, p, row("b", "v", 1)))
	f.on.Store(false)
	_, err = s.Backup(ctx, "backup", nil)
	require.NoError(t, err, "the next one has room")
	require.NoError(t, s.Close())
}

func TestRestoreRefuses(t *testing.T) {
	top := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{top}, names...)...) }
	s, err := openDirectory(at("data"), Options{})
	require.NoError(t, err)
	ctx, p := t.Context(), newPartition()
	require.NoError(t, s.Put(ctx, p, row("a", "v", 1)))
	_, err = s.Backup(ctx, at("backup"), nil)
	require.NoError(t, err)
	refused := func(kind store.Kind, from, to, says string) {
		t.Helper()
		_, err := Restore(ctx, from, to, Options{}, nil)
		require.ErrorIs(t, err, kind)
		require.ErrorContains(t, err, says)
	}
	refused(store.InvalidArgument, at("none"), at("to"), "no backup")
	require.NoError(t, os.Mkdir(at("empty"), 0o700))
	refused(store.InvalidArgument, at("empty"), at("to"), "has no file")
	refused(store.InvalidArgument, at("backup"), at("data"), "is not empty")
	refused(store.Unavailable, at("data"), at("to"), "held by")
	require.NoDirExists(t, at("to"))

	// One that was interrupted is no data directory.
	require.NoError(t, os.Rename(at("backup", FormatFile), at("format")))
	require.NoError(t, os.Rename(at("backup"), at("backup.partial")))
	refused(store.InvalidArgument, at("backup.partial"), at("to"), "did not come to its end")
	_, err = openDirectory(at("backup.partial"), Options{})
	require.ErrorIs(t, err, store.InvalidArgument)

	// A newer format, and a damaged one.
	require.NoError(t, os.Rename(at("backup.partial"), at("backup")))
	require.NoError(t, os.WriteFile(at("backup", FormatFile), []byte(formatMagic+"99\n"), 0o600))
	refused(store.InvalidArgument, at("backup"), at("to"), "newer evenkeel")
	require.NoError(t, os.Rename(at("format"), at("backup", FormatFile)))
	manifests, err := filepath.Glob(at("backup", "MANIFEST-*"))
	require.NoError(t, err)
	require.Len(t, manifests, 1)
	body, err := os.ReadFile(manifests[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(manifests[0], []byte("no manifest at all"), 0o600))
	require.NoError(t, os.Mkdir(at("mount"), 0o700))
	_, err = Restore(ctx, at("backup"), at("mount"), Options{}, nil)
	require.Error(t, err)
	left, err := os.ReadDir(at("mount"))
	require.NoError(t, err)
	require.Empty(t, left, "what was written is removed, the directory is not")

	// It is the backup's fault alone: mended it is restored, twice, and a store that is closed is, too.
	require.NoError(t, os.WriteFile(manifests[0], body, 0o600))
	require.NoError(t, s.Close())
	for i, from := range []string{at("backup"), at("backup"), at("data")} {
		to := at(fmt.Sprint("restored", i))
		_, err := Restore(ctx, from, to, Options{}, nil)
		require.NoError(t, err)
		r, err := openDirectory(to, Options{})
		require.NoError(t, err)
		require.Len(t, content(t, r, p), 1)
		require.NoError(t, r.Put(ctx, p, row("b", "v", 1)))
		require.NoError(t, r.Close())
	}
}
