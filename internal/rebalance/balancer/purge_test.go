package balancer_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Ranges that were purged as a whole leave their partitions with the next looks, for which nothing is copied: neighbours
// become one range, and one between others is refreshed. What has rows stays as it is.
func TestPurgedRangesAreLeftAtOnce(t *testing.T) {
	const rows = 6000
	refreshed := balancer.Decision{Kind: policy.Refresh, Why: policy.Dead}
	lookedAfter(t, 300, func(o *balancer.Options) { o.Policy.Cool = time.Hour }, func(f *fixture) {
		r := rand.New(rand.NewPCG(seed.Number(f), 1))
		for n, k := range r.Perm(rows) {
			if f.put(number(k)); n%100 == 0 {
				time.Sleep(2 * time.Second)
			}
		}
		// Not when the balancer looks: it could see that some of the ranges are empty, and refresh them, before others.
		time.Sleep(2*time.Hour + 3*time.Second)
		before := f.ranges()
		require.Greater(f, len(before), 16)
		purged := map[store.PartitionID]bool{}
		purge := func(from, to int) {
			require.NoError(f, f.bucket().DeleteRange(f.Context(), before[from].Start, before[to].Start))
			for _, rg := range before[from:to] {
				purged[rg.Partition] = true
			}
		}
		purge(2, 8)
		purge(10, 11)
		copied, decided := f.moved(), f.b.Status().Decided
		time.Sleep(25 * time.Second) // two looks, and a move
		after := f.ranges()
		require.LessOrEqual(f, len(after), len(before)-3) // what is counted a look later may not be joined
		for _, rg := range after {
			require.False(f, purged[rg.Partition], "[%s, %s) is still where its rows were", rg.Start, rg.End)
		}
		require.Equal(f, copied, f.moved(), "rows were copied")
		now := f.b.Status().Decided
		require.Greater(f, now[refreshed], decided[refreshed])
		left := f.keys()
		require.Less(f, left, rows)
		time.Sleep(3 * time.Hour)
		require.Equal(f, left, f.keys())
		require.Equal(f, now[refreshed], f.b.Status().Decided[refreshed], "once is enough")
	})
}
