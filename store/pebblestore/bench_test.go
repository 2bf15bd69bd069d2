package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// Each benchmark here runs the store and bare Pebble in turns and reports the
// ratio of their times, which carries from machine to machine; the absolute
// figures don't.

// bare opens Pebble with the options that the store opens it with.
func bare(b *testing.B) *pebble.DB {
	o := EngineOptions()
	o.MemTableSize = 64 << 20
	o.Cache = pebble.NewCache(128 << 20)
	defer o.Cache.Unref()
	o.Logger = logger{quiet}
	db, err := pebble.Open(b.TempDir(), o)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

var quiet = slog.New(slog.DiscardHandler)

const benchRows = 100_000

func benchKey(i int) []byte {
	return fmt.Appendf(nil, "photos/2024/album-%05d/image-%08d.jpg", i/100, i)
}

// fill stores the same rows in both, flushed and compacted alike.
func fill(b *testing.B, s *directory, db *pebble.DB, p store.Partition, valueBytes int, prefix []byte) {
	cell := store.EntryCell(make([]byte, valueBytes))
	for i := 0; i < benchRows; i += 1000 {
		rows := make([]store.Row, 1000)
		batch := db.NewBatch()
		for j := range rows {
			binary.BigEndian.PutUint32(cell[1:], uint32(i+j)*2654435761)
			rows[j] = store.Row{
				Key: benchKey(i + j), Value: append([]byte(nil), cell...), Timestamp: 1e15 + store.Timestamp(i+j),
			}
			require.NoError(b, batch.Set(append(prefix[:len(prefix):len(prefix)], rows[j].Key...), rows[j].Value, nil))
		}
		require.NoError(b, s.Put(context.Background(), p, rows...))
		require.NoError(b, batch.Commit(pebble.NoSync))
	}
	for _, d := range []*pebble.DB{s.db, db} {
		require.NoError(b, d.Flush())
		require.NoError(b, d.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	}
}

// BenchmarkSlice1000 reads a page of 1000 rows at random places. Bare is the
// fastest honest loop over bare Pebble with the same keys and values, both
// copied into one buffer.
func BenchmarkSlice1000(b *testing.B) {
	for _, size := range []int{32, 120, 1000} {
		for _, reverse := range []bool{false, true} {
			b.Run(fmt.Sprintf("value=%d/reverse=%v", size, reverse), func(b *testing.B) {
				benchSlice(b, size, reverse, nil)
			})
		}
	}
	// What Pebble alone takes for the longer keys that hold many partitions.
	b.Run("value=120/bare-with-partition-prefix", func(b *testing.B) {
		benchSlice(b, 120, false, make([]byte, prefixBytes))
	})
}

func benchSlice(b *testing.B, size int, reverse bool, prefix []byte) {
	s, err := openDirectory(b.TempDir(), Options{NoSync: true})
	require.NoError(b, err)
	defer s.Close()
	db, p := bare(b), newPartition()
	fill(b, s, db, p, size, prefix)

	type pair struct{ key, value []byte }
	bareSlice := func(start []byte) int {
		start = append(prefix[:len(prefix):len(prefix)], start...)
		o := &pebble.IterOptions{LowerBound: start}
		if reverse {
			o = &pebble.IterOptions{UpperBound: start}
		}
		it, _ := db.NewIter(o)
		rows := make([]pair, 0, 1000)
		arena := make([]byte, 0, 1000*(size+50))
		more, step := false, it.Next
		if reverse {
			more, step = it.Last(), it.Prev
		} else {
			more = it.First()
		}
		for ; more && len(rows) < 1000; more = step() {
			v, _ := it.ValueAndErr()
			i := len(arena)
			arena = append(append(arena, it.Key()[len(prefix):]...), v...)
			j := i + len(it.Key()) - len(prefix)
			rows = append(rows, pair{arena[i:j:j], arena[j:]})
		}
		_ = it.Close()
		return len(rows)
	}
	ourSlice := func(start []byte) int {
		bounds := store.Bounds{Start: start}
		if reverse {
			bounds = store.Bounds{End: start}
		}
		page, err := s.Slice(context.Background(), p, bounds, store.SliceOptions{Limit: 1000, Reverse: reverse})
		if err != nil {
			b.Fatal(err)
		}
		return len(page.Rows)
	}
	ratio(b, func(i int) {
		if n := bareSlice(benchKey(1000 + i*7919%(benchRows-2000))); n != 1000 {
			b.Fatal(n)
		}
	}, func(i int) {
		if n := ourSlice(benchKey(1000 + i*7919%(benchRows-2000))); n != 1000 {
			b.Fatal(n)
		}
	})
}

// ratio runs both in turns, b.N times each, and reports our median as a multiple
// of bare's. ns/op is ours.
func ratio(b *testing.B, bare, ours func(i int)) {
	var bareTimes, ourTimes []float64
	b.ReportAllocs()
	for i := range 20 {
		bare(i)
		ours(i)
	}
	b.ResetTimer()
	for i := range b.N {
		begun := time.Now()
		bare(i)
		turn := time.Now()
		ours(i)
		bareTimes = append(bareTimes, float64(turn.Sub(begun)))
		ourTimes = append(ourTimes, float64(time.Since(turn)))
	}
	b.ReportMetric(median(ourTimes)/median(bareTimes), "x-bare")
	b.ReportMetric(median(ourTimes), "ns/op")
	b.ReportMetric(median(bareTimes), "bare-ns/op")
}

// BenchmarkPut compares synced puts of single rows, in rounds that take turns:
// x-bare is the store's throughput as a share of bare Pebble's, the median of
// all pairs of rounds. Timestamps rise, as those of clocks do. The late ones are in
// no order, like their keys: more and more of them have to be compared with what is
// stored.
func BenchmarkPut(b *testing.B) {
	for _, workers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchPut(b, workers, false) })
	}
	b.Run("workers=64/late", func(b *testing.B) { benchPut(b, 64, true) })
}

// putsPerRound is small, so that a disk's moods meet both sides alike.
const putsPerRound = 20

func benchPut(b *testing.B, workers int, late bool) {
	s, err := openDirectory(b.TempDir(), Options{})
	require.NoError(b, err)
	defer s.Close()
	db, p := bare(b), newPartition()
	cell := store.EntryCell(make([]byte, 120))
	var next, clock atomic.Int64
	round := func(put func(i int) error) time.Duration {
		begun := time.Now()
		var g sync.WaitGroup
		left := atomic.Int64{}
		left.Store(int64(workers * putsPerRound))
		for range workers {
			g.Go(func() {
				for left.Add(-1) >= 0 {
					if err := put(int(next.Add(1) * 7919 % 10_000_019)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		g.Wait()
		return time.Since(begun)
	}
	var ratios, ourRate, bareRate []float64
	rate := func(d time.Duration) float64 { return float64(workers*putsPerRound) / d.Seconds() }
	for b.Loop() {
		bare := rate(round(func(i int) error { return db.Set(benchKey(i), cell, pebble.Sync) }))
		ours := rate(round(func(i int) error {
			ts := 1e15 + store.Timestamp(i)
			if !late {
				ts = 1e15 + store.Timestamp(clock.Add(1))
			}
			return s.Put(context.Background(), p, store.Row{Key: benchKey(i), Value: cell, Timestamp: ts})
		}))
		bareRate, ourRate, ratios = append(bareRate, bare), append(ourRate, ours), append(ratios, ours/bare)
	}
	b.ReportMetric(median(ratios), "x-bare")
	b.ReportMetric(median(ourRate), "puts/s")
	b.ReportMetric(median(bareRate), "bare-puts/s")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
