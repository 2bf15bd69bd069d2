package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Moves give way while they make the store slow, take all there is when they don't,
// and are not held down for ever by what others do.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 20_000
		pace := wait.NewPacer(most)
		var perRow, fixed, moving, need atomic.Int64
		fixed.Store(int64(time.Millisecond))
		th := throttle{pace: pace, most: most, need: func() int { return int(need.Load()) },
			probe: func(ctx context.Context) error {
				d := time.Duration(fixed.Load())
				if moving.Load() > 0 {
					d += time.Duration(perRow.Load() * int64(pace.Rate()))
				}
				time.Sleep(d)
				return nil
			}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		th.begin(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			th.run(ctx, func() []store.BucketID { return make([]store.BucketID, moving.Load()) })
		}()

		moving.Store(1)
		time.Sleep(time.Minute)
		require.Equal(t, most, pace.Rate(), "nothing is slow")

		// Each row per second costs a microsecond: 20 ms at the full rate, 3 ms at a
		// tenth of it.
		perRow.Store(int64(time.Microsecond))
		low, high := most, 0
		time.Sleep(time.Minute)
		for range 100 {
			time.Sleep(time.Second)
			low, high = min(low, pace.Rate()), max(high, pace.Rate())
		}
		require.GreaterOrEqual(t, low, most/lowest)
		require.Less(t, high, most/2, "it gives way")

		// What moves grows: less than that is of no use.
		need.Store(most * 3 / 4)
		time.Sleep(time.Minute)
		for range 100 {
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, pace.Rate(), most*3/4)
		}
		need.Store(2 * most)
		time.Sleep(time.Minute)
		require.Equal(t, most, pace.Rate(), "no more than that")
		need.Store(0)
		time.Sleep(time.Minute)
		require.Less(t, pace.Rate(), most/2, "it gives way again")

		// The store is slow because of others, whatever moves do.
		perRow.Store(0)
		fixed.Store(int64(30 * time.Millisecond))
		time.Sleep(5 * time.Minute)
		require.Equal(t, most, pace.Rate(), "it does not wait for others for ever")

		moving.Store(0)
		time.Sleep(time.Minute)
		require.Equal(t, most, pace.Rate())
		stop()
		<-done
	})
}

func TestNoThrottle(t *testing.T) {
	pace := wait.NewPacer(0)
	th := throttle{pace: pace, probe: func(context.Context) error { panic("no probe is needed") }}
	th.begin(t.Context())
	th.run(t.Context(), nil)
	require.Zero(t, pace.Rate())
}
