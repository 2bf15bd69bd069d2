package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// newestOf is the alternative that docs/decisions/pebble-last-write-wins.md
// weighs: a merger that keeps the operand with the highest timestamp. The
// operands sort like their values: timestamp first.
type newestOf struct{ best []byte }

func (m *newestOf) MergeNewer(v []byte) error {
	if bytes.Compare(v, m.best) > 0 {
		m.best = append(m.best[:0], v...)
	}
	return nil
}

func (m *newestOf) MergeOlder(v []byte) error { return m.MergeNewer(v) }

func (m *newestOf) Finish(bool) ([]byte, io.Closer, error) { return m.best, nil, nil }

// BenchmarkLastWriteWins compares, unsynced and in memory, what a put costs when
// its present row is read, when the bound of its slot spares that, and with a
// merger; and what a get costs after 100,000 overwrites.
func BenchmarkLastWriteWins(b *testing.B) {
	cell := store.EntryCell(make([]byte, 120))
	p := newPartition()
	const overwrites = 100_000
	ours := func(b *testing.B) *directory {
		s := openMem(b, vfs.NewMem(), Options{NoSync: true, MemTableBytes: 64 << 20})
		b.Cleanup(func() { require.NoError(b, s.Close()) })
		return s
	}
	ourPuts := func(b *testing.B, s *directory) {
		for i := range b.N {
			r := store.Row{Key: benchKey(i * 7919 % 1_000_003), Value: cell, Timestamp: 1e15 + store.Timestamp(i)}
			if err := s.Put(context.Background(), p, r); err != nil {
				b.Fatal(err)
			}
		}
	}
	merging := func(b *testing.B) *pebble.DB {
		o := EngineOptions()
		o.FS, o.MemTableSize, o.Logger = vfs.NewMem(), 64<<20, logger{quiet}
		o.Merger = &pebble.Merger{Name: "newest", Merge: func(_, v []byte) (pebble.ValueMerger, error) {
			return &newestOf{best: bytes.Clone(v)}, nil
		}}
		db, err := pebble.Open("", o)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	}
	merge := func(db *pebble.DB, key []byte, ts int) error {
		v := make([]byte, rowHeader+len(cell))
		putLive(v, 1e15+store.Timestamp(ts), cell)
		return db.Merge(rowKey(p, key), v, pebble.NoSync)
	}
	b.Run("put/read", func(b *testing.B) {
		s := ours(b)
		s.newest.base = math.MaxInt64
		ourPuts(b, s)
	})
	b.Run("put/bound", func(b *testing.B) { ourPuts(b, ours(b)) })
	b.Run("put/merger", func(b *testing.B) {
		db := merging(b)
		for i := range b.N {
			if err := merge(db, benchKey(i*7919%1_000_003), i); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get-overwritten/ours", func(b *testing.B) {
		s := ours(b)
		for i := range overwrites {
			require.NoError(
				b, s.Put(context.Background(), p, store.Row{Key: []byte("k"), Value: cell, Timestamp: 1e15 + store.Timestamp(i)}),
			)
		}
		b.ResetTimer()
		for range b.N {
			if _, found, err := s.Get(context.Background(), p, []byte("k")); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
	b.Run("get-overwritten/merger", func(b *testing.B) {
		db := merging(b)
		for i := range overwrites {
			require.NoError(b, merge(db, []byte("k"), i))
		}
		b.ResetTimer()
		for range b.N {
			_, closer, err := db.Get(rowKey(p, []byte("k")))
			if err != nil {
				b.Fatal(err)
			}
			_ = closer.Close()
		}
	})
}

// BenchmarkRemovePartition removes a whole partition of 100,000 flushed rows.
func BenchmarkRemovePartition(b *testing.B) {
	s, err := openDirectory(b.TempDir(), Options{NoSync: true})
	require.NoError(b, err)
	defer s.Close()
	var total time.Duration
	for range b.N {
		p := newPartition()
		for i := 0; i < 100_000; i += 1000 {
			rows := make([]store.Row, 1000)
			for j := range rows {
				rows[j] = store.Row{Key: fmt.Appendf(nil, "key-%08d", i+j), Value: make([]byte, 121), Timestamp: 1}
			}
			require.NoError(b, s.Put(context.Background(), p, rows...))
		}
		require.NoError(b, s.db.Flush())
		begun := time.Now()
		require.NoError(b, s.Remove(context.Background(), p, store.Bounds{}, 2))
		total += time.Since(begun)
	}
	b.ReportMetric(float64(total)/float64(b.N), "ns/remove")
}
