package scheduler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// At most RangesAtOnce ranges are worked on. Of those that wait every second one is of the bucket that has to keep up,
// the others come in their order. Sweeps don't wait for copies, and who gives up leaves nothing behind.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(nil, nil, Options{})
		var got []string
		ends := map[string]func(){}
		enter := func(ctx context.Context, name string, b *bucket, sweep bool) {
			go func() {
				end, err := g.room(ctx, b, sweep)
				g.mu.Lock()
				defer g.mu.Unlock()
				if err != nil {
					name += " gave up"
				}
				got, ends[name] = append(got, name), end
			}()
			synctest.Wait()
		}
		since := func() []string {
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			out := got
			got = nil
			return out
		}
		for i := range RangesAtOnce {
			enter(t.Context(), fmt.Sprint("first ", i), &bucket{}, false)
		}
		require.Len(t, since(), RangesAtOnce)
		ctx, stop := context.WithCancel(t.Context())
		enter(ctx, "impatient", &bucket{}, false)
		for _, name := range []string{"a", "b", "c"} {
			enter(t.Context(), name, &bucket{need: 1}, false)
		}
		hot := &bucket{need: 1000}
		for _, name := range []string{"hot 1", "hot 2", "hot 3"} {
			enter(t.Context(), name, hot, false)
		}
		require.Empty(t, since())
		enter(t.Context(), "sweep", hot, true)
		require.Equal(t, []string{"sweep"}, since())
		stop()
		require.Equal(t, []string{"impatient gave up"}, since())
		var order []string
		for i := range 6 {
			ends[fmt.Sprint("first ", i)]()
			order = append(order, since()...)
		}
		require.Equal(t, []string{"hot 1", "a", "hot 2", "b", "hot 3", "c"}, order)
		for name, end := range ends {
			switch name {
			case "first 0", "first 1", "first 2", "first 3", "first 4", "first 5", "impatient gave up":
			default:
				end()
			}
		}
		require.Zero(t, g.copies.taken)
		require.Zero(t, g.sweeps.taken)
		require.Empty(t, g.copies.waiting)
	})
}
