package balancer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// While the counters are away, for an hour, appends are cut ahead all the same: hot tails are read
// directly.
func TestRollsGoOnWithoutCounters(t *testing.T) {
	race.Skip(t)
	r := seed.New(t)
	for name, key := range map[string]func(i int) []byte{
		"numbers": number,
		"times":   func(int) []byte { return fmt.Appendf(nil, "%012x-%016x", time.Now().UnixMilli(), r.Uint64()) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "numbers" {
				t.Skip("the long form")
			}
			rollsGoOn(t, key)
		})
	}
}

func rollsGoOn(t *testing.T, key func(i int) []byte) {
	const perSecond, maxRows = 20, 1000
	lookedAfter(t, maxRows, func(o *balancer.Options) { o.Policy.Reserve = 0 }, func(f *fixture) {
		n := 0
		load := func(d time.Duration) {
			for range int(d.Seconds()) {
				for range perSecond {
					f.put(key(n))
					n++
				}
				time.Sleep(time.Second)
			}
		}
		load(5 * time.Minute)
		require.Zero(f, f.b.Status().Away)
		before, moved := len(f.sizes()), f.moved()
		f.counts.set(true, false)
		gone := time.Now()
		f.s.take()
		load(time.Hour)
		read := f.s.take()
		require.WithinDuration(f, gone, f.b.Status().Away, 2*time.Second)
		sizes := f.sizes()
		f.counts.set(false, false)
		load(2 * time.Minute)
		require.Zero(f, f.b.Status().Away)
		f.Logf("%d ranges for %d, largest %d, read %d rows and moved %d of %d", len(sizes)-before, 3600*perSecond/maxRows,
			slices.Max(sizes[before:]), read, f.moved()-moved, n)
		require.LessOrEqual(f, read, 2*n, "what was appended is read once, and the newest keys for forecasts")
		require.LessOrEqual(f, slices.Max(sizes[before:]), maxRows*15/10, "%v", sizes)
		require.LessOrEqual(f, len(sizes)-before, 3600*perSecond/maxRows*12/10)
		require.LessOrEqual(f, f.moved()-moved, int64(n)/20, "%v", f.b.Status().Moved)
		require.Equal(f, n, f.keys())
	})
}

// A direct read goes no further than the ranges that were empty above a tail: what lies beyond them
// is another stream's, and is not taken for what was appended.
func TestATailEndsWhereOthersBegin(t *testing.T) {
	const maxRows = 1000
	lookedAfter(t, maxRows, nil, func(f *fixture) {
		cut := move.Split(nil, nil, 0, []byte("m"))
		cut.PinUntil = time.Now().Add(24 * time.Hour).Unix()
		f.m.Submit(f.id(), "presplit", &scheduler.Plan{Bucket: f.id(), Moves: []move.Goal{cut}})
		for i := range 600 {
			f.put([]byte("z" + string(number(i))))
		}
		time.Sleep(5 * time.Minute)
		n := 0
		load := func(seconds int) {
			for range seconds {
				for range 5 {
					f.put(number(n))
					n++
				}
				time.Sleep(time.Second)
			}
		}
		load(300)
		f.counts.set(true, false)
		f.s.take()
		load(900)
		require.LessOrEqual(f, f.s.take(), 5*900*2+20*1000, "rows of another stream were read")
		sizes := f.sizes()
		require.LessOrEqual(f, slices.Max(sizes), maxRows*15/10, "%v", sizes)
		require.Contains(f, sizes, 600, "the other stream stays as it is: %v", sizes)
	})
}

// A size that nothing confirms is counted again: so the rows of a writer that is not counted are
// found, and the range is split.
func TestAWriterThatNobodyCountsIsFound(t *testing.T) {
	const maxRows = 1000
	lookedAfter(t, maxRows, func(o *balancer.Options) { o.Confirm, o.ConfirmPerS = 24*time.Hour, 100 }, func(f *fixture) {
		for i := range 10 {
			f.put(number(i))
		}
		time.Sleep(2 * time.Minute)
		p := store.Partition{Bucket: f.id(), ID: f.ranges()[0].Partition}
		rows := make([]store.Row, 0, 3*maxRows)
		for i := range 3 * maxRows {
			rows = append(rows, store.Row{
				Key: number(1000 + i), Value: store.EntryCell([]byte("v")), Timestamp: store.Timestamp(time.Now().UnixMicro()),
			})
		}
		for part := range slices.Chunk(rows, 500) {
			require.NoError(f, f.s.Store.Put(f.Context(), p, part...))
		}
		require.Len(f, f.ranges(), 1)
		time.Sleep(3 * time.Hour)
		sizes := f.sizes()
		require.Greater(f, len(sizes), 2)
		require.LessOrEqual(f, slices.Max(sizes), maxRows, "%v", sizes)
	})
}

// Sizes are confirmed at a bounded rate, each in its turn.
func TestSizesAreConfirmedAtABoundedRate(t *testing.T) {
	race.Skip(t)
	const maxRows, perS, days = 1000, 0.2, 5 // 720 rows per hour
	lookedAfter(t, maxRows, func(o *balancer.Options) { o.Confirm, o.ConfirmPerS = 24*time.Hour, perS }, func(f *fixture) {
		for i := range 10_000 {
			f.put(number(i * 7919 % 10_000))
		}
		time.Sleep(8 * time.Hour) // until the forecast has faded for which small ranges are not merged
		ranges := f.ranges()
		parts := make([]store.Partition, len(ranges))
		for i := range ranges {
			parts[i] = store.Partition{Bucket: f.id(), ID: ranges[i].Partition}
		}
		began := time.Now()
		f.s.take()
		time.Sleep(days * 24 * time.Hour)
		read := f.s.take()
		require.Greater(f, read, 10_000)
		require.LessOrEqual(f, float64(read), perS*days*24*3600*1.1+maxRows, "rows read")
		stats, err := f.counts.Stats(f.Context(), parts)
		require.NoError(f, err)
		for i := range stats {
			require.True(f, stats[i].Recounted.After(began), "range %d of %d", i, len(stats))
		}
		require.Equal(f, len(ranges), len(f.ranges()))
	})
}
