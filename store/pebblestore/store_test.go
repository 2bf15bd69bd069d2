package pebblestore

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// TestOverwrites reads a key that was overwritten a million times. The bound is
// on work, not on time: a read that walked over old versions would touch many
// times the bytes that it returns.
func TestOverwrites(t *testing.T) {
	n := store.Timestamp(1_000_000)
	if testing.Short() || race.Enabled {
		n = 100_000
	}
	s := openMem(t, vfs.NewMem(), Options{NoSync: true, MemTableBytes: 64 << 20})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	for ts := store.Timestamp(1); ts <= n; ts++ {
		require.NoError(t, s.Put(ctx, p, row("k", fmt.Sprint(ts), ts)))
	}
	require.NoError(t, s.Put(ctx, p, row("k", "late", n-1)))
	const reads = 1000
	begun := time.Now()
	for range reads {
		got, found, err := s.Get(ctx, p, []byte("k"))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, row("k", fmt.Sprint(n), n), got)
	}
	t.Logf("a get after %d overwrites: %v", n, time.Since(begun)/reads)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: rowKey(p, []byte("k")), UpperBound: rowKey(p, []byte("l"))})
	require.NoError(t, err)
	require.True(t, it.SeekGE(rowKey(p, []byte("k"))))
	stats := it.Stats()
	require.NoError(t, it.Close())
	require.LessOrEqual(t, stats.InternalStats.PointCount, uint64(2), "a read steps over old versions")
}

// TestGrace keeps tombstones and removals for the grace, counted from when they
// were stored, whatever their timestamps; then they go, and leave nothing.
func TestGrace(t *testing.T) {
	clock := newClock()
	fs := vfs.NewCrashableMem()
	o := Options{now: clock.read, TombstoneGrace: time.Hour}
	s := openMem(t, fs, o)
	s.newest.step = 1
	ctx, p, q := t.Context(), newPartition(), newPartition()
	rest := func() (n int) {
		it, err := s.db.NewIter(nil)
		require.NoError(t, err)
		for more := it.First(); more; more = it.Next() {
			if it.Key()[0] != tableMeta {
				n++
			}
		}
		require.NoError(t, it.Close())
		return n
	}
	require.NoError(t, s.Put(ctx, p, row("a", "v", 10), row("b", "v", 30)))
	require.NoError(t, s.Delete(ctx, p, []byte("a"), 20)) // an old timestamp, stored now
	require.NoError(t, s.Remove(ctx, q, store.Bounds{}, 20))
	late := func() []store.Row {
		require.NoError(t, s.Put(ctx, p, row("a", "late", 15)))
		require.NoError(t, s.Put(ctx, q, row("a", "late", 15)))
		return append(content(t, s, p), content(t, s, q)...)
	}
	clock.now = clock.now.Add(30 * time.Minute)
	// A second tombstone starts the grace of its key anew; an older one does too.
	require.NoError(t, s.Delete(ctx, p, []byte("c"), 20))
	require.NoError(t, s.Delete(ctx, p, []byte("c"), 5))

	clock.now = clock.now.Add(29 * time.Minute)
	require.NoError(t, s.collect(100))
	require.Equal(t, []store.Row{row("b", "v", 30)}, late())
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	s = openMem(t, after, o)
	s.newest.step = 1
	require.Equal(t, []store.Row{row("b", "v", 30)}, late(), "after a power loss")

	clock.now = clock.now.Add(2 * time.Minute)
	require.NoError(t, s.collect(100))
	require.Equal(t, 3, rest(), "the row b, the tombstone c and its entry are left")
	require.NoError(t, s.Put(ctx, p, row("c", "late", 15)))
	require.Equal(t, []store.Row{row("b", "v", 30)}, content(t, s, p))

	clock.now = clock.now.Add(time.Hour)
	require.NoError(t, s.collect(100))
	require.Equal(t, 1, rest())
	require.Empty(t, s.removals.byPartition)
	require.NoError(t, s.Close())
}

// TestCollectorSparesNewRows lets a row come back above a tombstone that is then
// due.
func TestCollectorSparesNewRows(t *testing.T) {
	clock := newClock()
	s := openMem(t, vfs.NewMem(), Options{now: clock.read})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	require.NoError(t, s.Delete(ctx, p, []byte("a"), 1))
	require.NoError(t, s.Put(ctx, p, row("a", "v", 2)))
	clock.now = clock.now.Add(2 * time.Hour)
	require.NoError(t, s.collect(100))
	require.Equal(t, []store.Row{row("a", "v", 2)}, content(t, s, p))
}

// TestBackgroundCollects waits for the background to do it.
func TestBackgroundCollects(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{TombstoneGrace: time.Millisecond})
	defer s.Close()
	p := newPartition()
	require.NoError(t, s.Delete(t.Context(), p, []byte("a"), 1))
	require.Eventually(t, func() bool {
		v, err := s.read(rowKey(p, []byte("a")))
		return err == nil && v == nil
	}, 30*time.Second, time.Millisecond)
}

// TestReadsWaitForSync holds back the log's syncs: a write is then neither
// acknowledged nor shown, and both happen together when they go on.
func TestReadsWaitForSync(t *testing.T) {
	hold := make(chan struct{})
	var holding atomic.Bool
	reached := make(chan struct{}, 100)
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if holding.Load() && op.Kind == errorfs.OpFileSyncData {
			reached <- struct{}{}
			<-hold
		}
		return nil
	})
	s := openMem(t, errorfs.Wrap(vfs.NewMem(), slow), Options{})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	key := []byte("k")
	reads := map[string]func() bool{
		"get": func() bool { _, found, err := s.Get(ctx, p, key); return err == nil && found },
		"slice": func() bool {
			page, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1})
			return err == nil && len(page.Rows) == 1
		},
		"superseded put": func() bool { return s.Put(ctx, p, row("k", "older", 1)) == nil },
		"partitions": func() bool {
			ps, err := s.Partitions(ctx, store.Partition{}, 1)
			return err == nil && len(ps) == 1
		},
	}
	register := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}}
	reads["register"] = func() bool { _, err := s.Read(ctx, store.Clocks, key, store.Serial); return err == nil }
	node := store.NodeID{1}
	reads["node"] = func() bool { _, err := s.Node(ctx, p.Bucket, node); return err == nil }
	holding.Store(true)
	writes := []func() error{
		func() error { return s.Put(ctx, p, row("k", "v", 2)) },
		func() error { return s.Swap(ctx, store.Clocks, key, store.Version{}, register) },
		func() error { return s.WriteNode(ctx, p.Bucket, node, []byte("n")) },
	}
	written := make(chan error, len(writes))
	for _, write := range writes {
		go func() { written <- write() }()
	}
	<-reached
	applied := func(phys []byte) bool { v, err := s.read(phys); return err == nil && v != nil }
	require.Eventually(t, func() bool {
		return applied(rowKey(p, key)) && applied(registerKey(store.Clocks, key)) && applied(nodeKey(p.Bucket, node))
	}, 30*time.Second, time.Millisecond)
	type answer struct {
		name string
		ok   bool
	}
	answers := make(chan answer, len(reads))
	left := len(reads)
	for name, read := range reads {
		go func() { answers <- answer{name, read()} }()
	}
	select {
	case a := <-answers:
		left--
		t.Errorf("%s answered (%v) before the sync", a.name, a.ok)
	case err := <-written:
		written <- err
		t.Errorf("the put answered (%v) before the sync", err)
	case <-time.After(50 * time.Millisecond): // nothing may come, however long
	}
	holding.Store(false)
	close(hold)
	for range writes {
		require.NoError(t, <-written)
	}
	for range left {
		a := <-answers
		require.True(t, a.ok, a.name)
	}
	require.Zero(t, s.locks.unsynced.Load())
}

// TestHeld refuses a directory that is open already, here and elsewhere.
func TestHeld(t *testing.T) {
	if dir := os.Getenv("EVENKEEL_HELD_DIR"); dir != "" {
		_, err := openDirectory(dir, Options{})
		fmt.Println(store.KindOf(err), err)
		return
	}
	dir := t.TempDir()
	s, err := openDirectory(dir, Options{})
	require.NoError(t, err)
	_, err = openDirectory(dir, Options{})
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "is held by another process")
	require.ErrorContains(t, err, dir)

	c := exec.Command(os.Args[0], "-test.run=^TestHeld$", "-test.v")
	c.Env = append(os.Environ(), "EVENKEEL_HELD_DIR="+dir)
	out, err := c.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "unavailable open "+dir)
	require.Contains(t, string(out), "stop the other")
	require.NoError(t, s.Close())
	s, err = openDirectory(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestFormat(t *testing.T) {
	dir := t.TempDir()
	s, err := openDirectory(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	marker := filepath.Join(dir, FormatFile)
	for text, want := range map[string]store.Kind{
		"evenkeel pebblestore format 5\n":  store.InvalidArgument,
		"evenkeel pebblestore format x\n":  store.Corrupt,
		"evenkeel pebblestore format -1\n": store.Corrupt,
		"":                                 store.Corrupt,
	} {
		require.NoError(t, os.WriteFile(marker, []byte(text), 0o600))
		_, err = openDirectory(dir, Options{})
		require.ErrorIs(t, err, want, "%q", text)
		require.ErrorContains(t, err, dir)
	}
	require.NoError(t, os.Remove(marker))
	_, err = openDirectory(dir, Options{})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "holds something else")
}

// TestDamage flips one byte in a table file: reads of it are Corrupt and name
// it, and reads of anything else go on.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s, err := openDirectory(dir, Options{NoSync: true})
	require.NoError(t, err)
	ctx, p := t.Context(), newPartition()
	for i := range 3000 {
		require.NoError(t, s.Put(ctx, p, row(fmt.Sprintf("%05d", i), "value", 1)))
	}
	require.NoError(t, s.db.Flush())
	require.NoError(t, s.Close())
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.Len(t, tables, 1)
	data, err := os.ReadFile(tables[0])
	require.NoError(t, err)
	data[len(data)/4] ^= 0x40
	require.NoError(t, os.WriteFile(tables[0], data, 0o600))

	s, err = openDirectory(dir, Options{NoSync: true})
	require.NoError(t, err)
	_, err = s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: store.MaxPageRows})
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, tables[0])
	require.NoError(t, s.Put(ctx, newPartition(), row("k", "v", 1)))
	require.NoError(t, s.Close())
}

// TestForeignRow meets a stored row of no known form.
func TestForeignRow(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	for _, v := range []string{"", "\x01", "\x07\x00\x00\x00\x00\x00\x00\x00\x01",
		"\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00", "\x01\x00\x00\x00\x00\x00\x00\x00\x00"} {
		require.NoError(t, s.db.Set(rowKey(p, []byte("k")), []byte(v), nil))
		_, _, err := s.Get(ctx, p, []byte("k"))
		require.ErrorIs(t, err, store.Corrupt, "%q", v)
		require.ErrorContains(t, err, `row "k" of `+p.String())
		_, err = s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1, Timestamps: true})
		require.ErrorIs(t, err, store.Corrupt, "%q", v)
	}
}

// TestRemoveIsCheap removes a whole partition of many rows by one range
// deletion, and keeps a newer row inside.
func TestRemoveIsCheap(t *testing.T) {
	s := openMem(t, vfs.NewMem(), Options{NoSync: true})
	defer s.Close()
	ctx, p := t.Context(), newPartition()
	var rows []store.Row
	for i := range 5000 {
		rows = append(rows, row(fmt.Sprintf("%05d", i), "value", 1))
	}
	require.NoError(t, s.Put(ctx, p, rows...))
	before := s.db.Metrics().WAL.BytesIn
	require.NoError(t, s.Remove(ctx, p, store.Bounds{}, 5))
	require.Less(t, s.db.Metrics().WAL.BytesIn-before, uint64(1000))
	require.Empty(t, content(t, s, p))

	for i := range rows {
		rows[i].Timestamp = 6
	}
	rows[2000].Timestamp = 8
	require.NoError(t, s.Put(ctx, p, rows...))
	require.NoError(t, s.Remove(ctx, p, store.Bounds{}, 7))
	require.Equal(t, rows[2000:2001], content(t, s, p))
	require.Len(t, s.removals.of(p), 1, "the older removal within is not needed any more")
}
