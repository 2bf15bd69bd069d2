package memstore_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func fill(tb testing.TB, s memstore.Store, p store.Partition, rows int) {
	tb.Helper()
	batch := make([]store.Row, 0, 1000)
	for i := range rows {
		batch = append(batch, store.Row{
			Key: fmt.Appendf(nil, "some/path/%08d", i), Value: make([]byte, 64), Timestamp: 1,
		})
		if len(batch) == cap(batch) || i == rows-1 {
			require.NoError(tb, s.Put(tb.Context(), p, batch...))
			batch = batch[:0]
		}
	}
}

func partition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

func BenchmarkPutBatchOf100(b *testing.B) {
	s, p := memstore.New(), partition()
	rows := make([]store.Row, 100)
	for n := uint64(0); b.Loop(); n++ {
		for i := range rows {
			rows[i] = store.Row{
				Key: binary.BigEndian.AppendUint64(nil, (n*100+uint64(i))*0x9e3779b97f4a7c15), Value: make([]byte, 64),
				Timestamp: 1,
			}
		}
		require.NoError(b, s.Put(b.Context(), p, rows...))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/row")
}

func BenchmarkSliceOf1000(b *testing.B) {
	s, p := memstore.New(), partition()
	fill(b, s, p, 100_000)
	start := []byte("some/path/00050000")
	for b.Loop() {
		page, err := s.Slice(b.Context(), p, store.Bounds{Start: start}, store.SliceOptions{Limit: 1000})
		require.NoError(b, err)
		require.Len(b, page.Rows, 1000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}

// BenchmarkMemory reports what a row and a partition cost.
func BenchmarkMemory(b *testing.B) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		s := memstore.New()
		before := heap()
		fill(b, s, partition(), 1_000_000)
		rows := heap()
		for range 100_000 {
			require.NoError(b, s.Put(b.Context(), partition(),
				store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 1}))
		}
		partitions := heap()
		b.ReportMetric((rows-before)/1e6, "B/row")
		b.ReportMetric((partitions-rows)/1e5, "B/partition")
		runtime.KeepAlive(s)
	}
}
