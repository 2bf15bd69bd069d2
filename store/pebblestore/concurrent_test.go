package pebblestore

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// TestConcurrentArrivals lets a few writes of one moment meet in one partition,
// many times, in every kind of write: what is left is what the timestamps say,
// as if they had come one by one. Long values widen the gap between a write's
// look at the present row and its own.
func TestConcurrentArrivals(t *testing.T) {
	for _, noSync := range []bool{true, false} {
		t.Run(fmt.Sprintf("noSync=%v", noSync), func(t *testing.T) { concurrentArrivals(t, noSync) })
	}
}

func concurrentArrivals(t *testing.T, noSync bool) {
	r := seed.New(t)
	s := openMem(t, vfs.NewMem(), Options{NoSync: noSync, MemTableBytes: 16 << 20})
	s.newest.step = 1
	defer s.Close()
	rounds := 3000
	if race.Enabled {
		rounds = 700
	}
	for round := range rounds {
		p := newPartition()
		var want oracle
		var writes []func() error
		for w := range 6 {
			ts := store.Timestamp(1 + r.IntN(8))
			value := append(fmt.Appendf(nil, "%d", w), bytes.Repeat([]byte{'.'}, 1+r.IntN(4000))...)
			switch r.IntN(5) {
			case 0:
				want.deletes = append(want.deletes, store.Row{Key: []byte("k"), Timestamp: ts})
				writes = append(writes, func() error { return s.Delete(t.Context(), p, []byte("k"), ts) })
			case 1:
				b := store.Bounds{Start: []byte("j"), End: []byte("l")}
				want.removes = append(want.removes, struct {
					b  store.Bounds
					ts store.Timestamp
				}{b, ts})
				writes = append(writes, func() error { return s.Remove(t.Context(), p, b, ts) })
			default:
				rows := make([]store.Row, 1+r.IntN(3)*r.IntN(wideRows))
				for i := range rows {
					rows[i] = store.Row{Key: fmt.Appendf(nil, "m%d", i), Value: []byte{}, Timestamp: 1}
				}
				rows[r.IntN(len(rows))] = store.Row{Key: []byte("k"), Value: value, Timestamp: ts}
				want.puts = append(want.puts, rows...)
				if r.IntN(2) == 0 {
					writes = append(writes, func() error { return s.PutThen(t.Context(), p, func() {}, rows...) })
				} else {
					writes = append(writes, func() error { return s.Put(t.Context(), p, rows...) })
				}
			}
		}
		start := make(chan struct{})
		var g sync.WaitGroup
		for _, write := range writes {
			g.Go(func() {
				<-start
				if err := write(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		g.Wait()
		require.Equal(t, want.visible(), content(t, s, p), "round %d", round)
	}
}
