package wait_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// What is prepared slowly, as while a store does not answer, holds up nobody whose context ends: neither the first user
// nor those beside it.
func TestWhileIsLeftBeforeItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wait.While
		begun, ended := 0, 0
		begin := func(ctx context.Context) func() {
			begun++
			<-ctx.Done()
			return func() { ended++ }
		}
		first, endFirst := context.WithCancel(t.Context())
		second, endSecond := context.WithCancel(t.Context())
		left := make(chan string, 2)
		for name, ctx := range map[string]context.Context{"first": first, "second": second} {
			go func() {
				w.During(ctx, begin, func() { <-ctx.Done() })
				left <- name
			}()
		}
		synctest.Wait()
		endSecond()
		synctest.Wait()
		require.Equal(t, 1, len(left))
		require.Equal(t, "second", <-left)
		endFirst()
		require.Equal(t, "first", <-left)
		require.Equal(t, [2]int{1, 1}, [2]int{begun, ended})
	})
}

// The work is prepared before its users go on, once for all of them.
func TestWhileBeginsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wait.While
		for range 2 {
			prepared, working := false, false
			w.During(t.Context(), func(ctx context.Context) func() {
				prepared = true
				return func() { working = true; <-ctx.Done(); working = false }
			}, func() {
				require.True(t, prepared)
				w.During(t.Context(), nil, func() {})
				synctest.Wait()
				require.True(t, working)
			})
			require.False(t, working)
		}
	})
}
