package listtest

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// Clock is a source of timestamps that only counts up, so that a test knows the order of all writes.
type Clock struct {
	timestamps.Alone
	last atomic.Int64
}

// Next returns the first of n successive timestamps.
func (c *Clock) Next(_ context.Context, n int) (store.Timestamp, error) {
	return store.Timestamp(c.last.Add(int64(n)) - int64(n) + 1), nil
}

// Draw returns a timestamp that is higher than all timestamps before.
func (c *Clock) Draw() store.Timestamp { return store.Timestamp(c.last.Add(1)) }

// Last returns the highest timestamp that was given out so far.
func (c *Clock) Last() store.Timestamp { return store.Timestamp(c.last.Load()) }
