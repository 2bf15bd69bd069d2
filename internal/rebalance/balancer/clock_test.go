package balancer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// A wall clock that is set forward and back in the middle of a load does not keep a
// bucket out of shape, whether looks are made at an interval or at times of the day.
func TestAClockThatJumps(t *testing.T) {
	for _, scheduled := range []bool{false, true} {
		t.Run(fmt.Sprintf("scheduled %v", scheduled), func(t *testing.T) {
			var ahead atomic.Int64
			lookedAfter(t, 1000, func(o *balancer.Options) {
				// Without its monotonic part: a step is all that is seen of it.
				o.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
				if scheduled {
					o.Next = func(last time.Time) time.Time { return last.Truncate(time.Minute).Add(time.Minute) }
					o.Every = time.Minute
				}
			}, func(f *fixture) {
				seed := seed.Number(f)
				n := 0
				for _, step := range []time.Duration{0, 5 * time.Hour, -9 * time.Hour, 24 * time.Hour,
					-24 * time.Hour} {
					ahead.Add(int64(step))
					for _, k := range rand.New(rand.NewPCG(seed, uint64(n))).Perm(1500) {
						f.put(fmt.Appendf(nil, "%d-%06d", n%7, n+10_000*k))
						if n++; n%50 == 0 {
							time.Sleep(time.Second)
						}
					}
					time.Sleep(4 * time.Minute)
					require.LessOrEqual(f, slices.Max(f.sizes()), 1000, "after a step of %v", step)
				}
				require.Equal(f, n, f.keys())
			})
		})
	}
}

// At times of the day nothing is looked at before the first of them.
func TestLooksAtTimesOfTheDay(t *testing.T) {
	var looks []time.Time
	lookedAfter(t, 100, func(o *balancer.Options) {
		o.Every = time.Hour
		o.Next = func(last time.Time) time.Time { return last.Truncate(time.Hour).Add(time.Hour) }
	}, func(f *fixture) {
		for i := range 500 {
			f.put(number(i))
		}
		time.Sleep(30 * time.Minute)
		require.Zero(f, f.b.Status().Round.Ranges)
		require.Len(f, f.sizes(), 1)
		for range 300 {
			time.Sleep(time.Minute)
			if r := f.b.Status().Round; len(looks) == 0 || !looks[len(looks)-1].Equal(r.Began) {
				if !r.Began.IsZero() {
					looks = append(looks, r.Began)
				}
			}
		}
		require.LessOrEqual(f, slices.Max(f.sizes()), 100, "what a look begins is brought to its end")
	})
	require.Len(t, looks, 5)
	for i, at := range looks {
		require.Less(t, at.Sub(at.Truncate(time.Hour)), 2*time.Second, "look %d was at %v", i, at)
	}
}
