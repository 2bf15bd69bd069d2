package balancer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
)

// A shard that this process takes from another one is looked at from the next interval on, or at the next time of a
// schedule: not before, and not more often, also while the counters are away or all is being looked at.
func TestLooksAtAShardThatComes(t *testing.T) {
	for name, schedule := range map[string]func(time.Time) time.Time{
		"at times of the day": func(last time.Time) time.Time { return last.Truncate(time.Hour).Add(time.Hour) },
		"at an interval":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			var led atomic.Uint32
			every := 10 * time.Second
			if schedule != nil {
				every = time.Hour
			}
			lookedAfter(t, 100, func(o *balancer.Options) {
				o.Every, o.Next = every, schedule
				o.Led = func() shard.Set { return shard.Set(led.Load()) }
			}, func(f *fixture) {
				for i := range 500 {
					f.put(number(i))
				}
				rounds := func(d time.Duration) int {
					began := map[time.Time]bool{f.b.Status().Round.Began: true}
					for range int(d.Seconds()) {
						time.Sleep(time.Second)
						began[f.b.Status().Round.Began] = true
					}
					return len(began) - 1
				}
				time.Sleep(5 * time.Minute)
				f.counts.set(true, false)
				led.Store(uint32(shard.All))
				require.LessOrEqual(f, rounds(2*time.Minute), 1+int(2*time.Minute/every))
				f.counts.set(false, false)
				if schedule != nil {
					time.Sleep(40 * time.Minute)
					require.Len(f, f.sizes(), 1, "it is not yet time")
					time.Sleep(40 * time.Minute)
				}
				time.Sleep(time.Minute)
				require.Greater(f, len(f.sizes()), 1)
			})
		})
	}
}

// What waits to be counted is not counted any more when another process leads the shard.
func TestLostShardsAreNotCounted(t *testing.T) {
	var led atomic.Uint32
	led.Store(uint32(shard.All))
	lookedAfterAt(t, 1000, 100, func(o *balancer.Options) {
		o.Led = func() shard.Set { return shard.Set(led.Load()) }
	}, func(f *fixture) {
		for i := range 5000 {
			f.put(number(i))
		}
		time.Sleep(time.Second)
		f.counts.set(false, true) // nothing is known of it
		for f.b.Status().Waiting == 0 {
			time.Sleep(time.Second)
		}
		led.Store(0)
		f.s.take()
		time.Sleep(time.Minute)
		require.Zero(f, f.b.Status().Waiting)
		require.LessOrEqual(f, f.s.take(), 2*1000, "a page each of two at once")
	})
}

// The sizes that a process shows are those of what it leads: several processes add up to all.
func TestSizesOfLostShardsAreNotShown(t *testing.T) {
	var led atomic.Uint32
	led.Store(uint32(shard.All))
	lookedAfter(t, 1000, func(o *balancer.Options) {
		o.Led = func() shard.Set { return shard.Set(led.Load()) }
	}, func(f *fixture) {
		f.put(number(1))
		time.Sleep(2 * balancer.FullEvery)
		require.Equal(f, int64(2), f.b.Status().Sizes.Rows, "one of them in the directory")
		led.Store(0)
		time.Sleep(time.Minute)
		require.Zero(f, f.b.Status().Sizes)

		led.Store(uint32(shard.All))
		time.Sleep(time.Minute)
		require.NotZero(f, f.b.Status().Sizes)
		f.end()
		require.Zero(f, f.b.Status().Sizes)
	})
}
