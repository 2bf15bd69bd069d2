package pebblestore

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// versionsInMemory puts some versions of each of some objects into a memtable.
func versionsInMemory(t *testing.T, s *directory, p store.Partition, objects, versions int, at store.Timestamp) {
	t.Helper()
	for i := range objects {
		var rows []store.Row
		for j := range versions {
			rows = append(rows, store.Row{
				Key:   fmt.Appendf(nil, "object %04d\x00\x01%03d", i, j),
				Value: store.EntryCell(make([]byte, 100)), Timestamp: at,
			})
		}
		require.NoError(t, s.Put(t.Context(), p, rows...))
	}
}

// listLatest reads the first row of each object.
func listLatest(t *testing.T, s *directory, p store.Partition, objects int) {
	t.Helper()
	page, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{
		Limit: objects, Sift: func(key, cell []byte) (pass, keep int) {
			return bytes.Index(key, groupEnd) + len(groupEnd), len(cell)
		},
	})
	require.NoError(t, err)
	require.Len(t, page.Rows, objects)
}

// Listings that jump a lot have a memtable flushed, which listings that do not jump have not, nor one that is small.
func TestJumpsFlush(t *testing.T) {
	const objects, most = 1000, 2 * jumpsToFlush / 1000
	for name, c := range map[string]struct {
		versions int
		flushed  bool
	}{
		"many versions":                {100, true},
		"one version":                  {1, false},
		"many versions of a few bytes": {3, false}, // which are read through
	} {
		t.Run(name, func(t *testing.T) {
			s := openMem(t, vfs.NewMem(), Options{NoSync: true, MemTableBytes: 64 << 20})
			defer func() { require.NoError(t, s.Close()) }()
			p := newPartition()
			versionsInMemory(t, s, p, objects, c.versions, 1)
			before := s.db.Metrics()
			for range most {
				listLatest(t, s, p, objects)
			}
			flushes := func() int64 { return s.db.Metrics().Flush.Count - before.Flush.Count }
			if !c.flushed {
				time.Sleep(50 * time.Millisecond)
				require.Zero(t, flushes())
				return
			}
			require.Eventually(t, func() bool { return flushes() > 0 }, 30*time.Second, time.Millisecond)
			// Not again at once, however long that takes here.
			versionsInMemory(t, s, p, objects, c.versions, 2)
			at := time.Now().Add(time.Hour)
			s.jumps.flushed.Store(&at)
			for range most {
				listLatest(t, s, p, objects)
			}
			require.Same(t, &at, s.jumps.flushed.Load())
			// But later.
			earlier := time.Now().Add(-flushEvery)
			s.jumps.flushed.Store(&earlier)
			for range most {
				listLatest(t, s, p, objects)
			}
			require.NotSame(t, &earlier, s.jumps.flushed.Load())
		})
	}
}

// Memtables leave the cache of blocks as large as it was asked for: Pebble takes them from the same budget.
func TestMemTablesLeaveTheCache(t *testing.T) {
	const cache = 4 << 20
	s := openMem(t, vfs.NewMem(), Options{NoSync: true, MemTableBytes: 4 << 20, CacheBytes: cache})
	defer func() { require.NoError(t, s.Close()) }()
	p := newPartition()
	value := bytes.Repeat([]byte("x"), 3000)
	for i := range 20_000 {
		row := store.Row{Key: fmt.Appendf(nil, "%06d", i), Value: store.EntryCell(value), Timestamp: 1}
		require.NoError(t, s.Put(t.Context(), p, row))
	}
	require.NoError(t, s.db.Flush())
	listAll := func() {
		for b := (store.Bounds{}); ; {
			page, err := s.Slice(t.Context(), p, b, store.SliceOptions{Limit: 1000})
			require.NoError(t, err)
			if !page.More {
				return
			}
			b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
		}
	}
	// A compaction takes the blocks of its inputs out of the cache whenever it ends, and between two compactions none
	// is in progress: so rows are listed until no compaction comes in between. A cache whose budget goes to memtables
	// never fills.
	full := func() bool { return s.db.Metrics().BlockCache.Size > cache*3/4 }
	for deadline := time.Now().Add(time.Minute); !full(); listAll() {
		require.True(t, time.Now().Before(deadline), "%d bytes", s.db.Metrics().BlockCache.Size)
	}
}
