package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
)

// Of coroutines one runs at a time: what has an element goes on before what has slept, and the context that ends ends
// both.
func TestCoroutines(t *testing.T) {
	begin := time.Unix(0, 0)
	c := balancer.NewCoroutines(begin)
	ctx, stop := context.WithCancelCause(t.Context())
	elements := make(chan struct{}, 1)
	var log []string
	note := func(format string, args ...any) {
		log = append(log, fmt.Sprintf("%v "+format, append([]any{c.Now().Sub(begin)}, args...)...))
	}
	for i := range 2 {
		c.Go(func() {
			note("waiter %d begins", i)
			for c.Wait(ctx, elements) == nil {
				note("waiter %d takes an element", i)
			}
			note("waiter %d ends", i)
		})
	}
	c.Go(func() {
		elements <- struct{}{}
		require.NoError(t, c.Sleep(ctx, 0), "it goes on at once")
		note("an element")
		require.NoError(t, c.Sleep(ctx, time.Second))
		elements <- struct{}{}
		note("another element")
		c.Go(func() {
			note("another begins")
			note("another ends: %v", c.Sleep(ctx, time.Hour))
		})
	})
	next := c.Settle()
	require.Equal(t, begin.Add(time.Second), next)
	c.Pass(next)
	require.Equal(t, next.Add(time.Hour), c.Settle())
	stop(errors.New("the end"))
	require.Zero(t, c.Settle())
	require.Equal(t, []string{
		"0s waiter 0 begins", "0s waiter 1 begins",
		"0s an element", "0s waiter 0 takes an element",
		"1s another element", "1s waiter 0 takes an element",
		"1s another begins",
		"1s waiter 0 ends", "1s waiter 1 ends", "1s another ends: the end",
	}, log)
}
