package rediscounter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/store"
)

// used returns how many bytes Redis has for all keys but the head, by MEMORY USAGE.
func used(t *testing.T, b *backend) (n int64) {
	t.Helper()
	keys, err := b.c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if key == b.groups[0].head() {
			continue
		}
		of, err := b.c.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		n += of
	}
	return n
}

// rested makes all partitions look as if they had been written to so much earlier.
func rested(t *testing.T, b *backend, by time.Duration) {
	t.Helper()
	all, err := b.c.ZRangeWithScores(t.Context(), b.groups[0].written(), 0, -1).Result()
	require.NoError(t, err)
	for i := range all {
		all[i].Score -= float64(by.Milliseconds())
	}
	require.NoError(t, b.c.ZAdd(t.Context(), b.groups[0].written(), all...).Err())
}

// A range at rest takes at most 4 KB, whether it was written to or only counted. What is known of it stays, and counts
// go on when it is written to again.
func TestARangeAtRestTakesLittle(t *testing.T) {
	const ranges, each, most = 300, 1000, 4000
	key := func(k int) []byte { return fmt.Appendf(nil, "tenant-%08d/2026/11/26/object-%08d", 7, k) }
	for _, kind := range []string{"written", "counted"} {
		t.Run(kind, func(t *testing.T) {
			server := redistest.Start(t)
			b := patient(t, server)
			r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
			all := make([]store.Partition, ranges)
			for i := range all {
				all[i] = partition()
				if kind == "counted" {
					full := countbook.NewRecount(rows(each), all[i], store.Bounds{}, countbook.RecountOptions{Now: time.Now})
					c, err := full.Run(t.Context())
					require.NoError(t, err)
					require.NoError(t, b.Correct(t.Context(), all[i], c))
					continue
				}
				require.NoError(t, b.Correct(t.Context(), all[i], &counter.Count{Started: time.Now()}))
				for k := range each {
					r.Put(all[i], key(k), 100, store.Timestamp(time.Now().Add(time.Second).UnixMicro()))
				}
			}
			require.NoError(t, r.Flush(t.Context()))
			_, _, err := b.Written(t.Context(), 0)
			require.NoError(t, err)
			before := used(t, b) / ranges
			require.Greater(t, before, int64(2*most), "it is not at rest yet")
			rested(t, b, 31*time.Minute)
			leader := patient(t, server)
			for range (ranges + perThin - 1) / perThin {
				_, _, err = leader.Written(t.Context(), 0)
				require.NoError(t, err)
			}
			after := used(t, b) / ranges
			t.Logf("%d bytes a range, at rest %d", before, after)
			require.LessOrEqual(t, after, int64(most))
			stats, err := b.Stats(t.Context(), all)
			require.NoError(t, err)
			for i := range stats {
				require.True(t, stats[i].Known)
				require.Equal(t, int64(each), stats[i].Rows)
			}
			quanta, err := b.Quanta(t.Context(), all[0])
			require.NoError(t, err)
			require.Greater(t, len(quanta), 30)
			for k := range 100 { // by a client that knows the limit of before
				r.Put(all[0], key(each+k), 100, store.Timestamp(time.Now().Add(time.Minute).UnixMicro()))
			}
			require.NoError(t, r.Flush(t.Context()))
			stats, err = b.Stats(t.Context(), all[:1])
			require.NoError(t, err)
			require.Equal(t, int64(each+100), stats[0].Rows)
		})
	}
}
