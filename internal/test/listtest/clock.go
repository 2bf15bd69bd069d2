package listtest

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// Clock is a source of timestamps that only counts, so that a test knows the
// order of all writes.
type Clock struct {
	timestamps.Alone
	last atomic.Int64
}

// Next returns the first of n timestamps.
func (c *Clock) Next(_ context.Context, n int) (store.Timestamp, error) {
	return store.Timestamp(c.last.Add(int64(n)) - int64(n) + 1), nil
}

// Draw returns one timestamp.
func (c *Clock) Draw() store.Timestamp { return store.Timestamp(c.last.Add(1)) }

// Last is the highest timestamp given out.
func (c *Clock) Last() store.Timestamp { return store.Timestamp(c.last.Load()) }
