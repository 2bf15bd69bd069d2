package history_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// counter is a source of timestamps.
type counter struct {
	timestamps.Alone
	last store.Timestamp
}

func (c *counter) Next(_ context.Context, n int) (store.Timestamp, error) {
	c.last += store.Timestamp(n)
	return c.last - store.Timestamp(n) + 1, nil
}

func TestRecorderTakesDownWhatHappens(t *testing.T) {
	ctx := t.Context()
	r := &history.Recorder{}
	s := r.Timestamps(&counter{last: 100})
	var value string
	put := func(ctx context.Context, v []byte) error {
		_, err := s.Next(ctx, 1)
		value = string(v)
		return err
	}
	require.NoError(t, r.Put(ctx, "here", "k", put))
	require.NoError(t, r.Delete(ctx, "here", "l", func(ctx context.Context) error {
		_, err := s.Next(ctx, 1)
		return err
	}))
	lost := store.Errorf(store.Timeout, "no answer")
	require.ErrorIs(t, r.Delete(ctx, "here", "k", func(ctx context.Context) error {
		_, _ = s.Next(ctx, 1)
		return lost
	}), store.Timeout)
	require.ErrorIs(t, r.Delete(ctx, "here", "k", func(context.Context) error { return lost }), store.Timeout)
	require.ErrorIs(t, r.Put(ctx, "here", "k", func(ctx context.Context, _ []byte) error {
		_, _ = s.Next(ctx, 1)
		return store.InvalidArgument
	}), store.InvalidArgument)
	require.NoError(t, r.Get("here", "k", func() ([]byte, bool, error) { return []byte(value), true, nil }))
	require.Error(t, r.Get("here", "k", func() ([]byte, bool, error) { return nil, false, errors.New("no") }))
	tries := 0
	require.NoError(t, r.List(history.Listing{Site: "here"}, func() ([]history.Item, bool, error) {
		if tries++; tries == 2 {
			return nil, false, errors.New("once")
		}
		if tries == 1 {
			return []history.Item{{Key: "k", Value: value}}, true, nil
		}
		return nil, false, nil
	}, func(error) bool { return true }))

	h := r.History()
	require.Empty(t, h.Check())
	require.Len(t, h.Writes, 5)
	outcomes := []history.Outcome{history.Acknowledged, history.Acknowledged, history.Unknown, history.Refused,
		history.Refused}
	for i, w := range h.Writes {
		require.Equal(t, outcomes[i], w.Outcome)
		require.Less(t, w.Begin, w.End)
	}
	require.EqualValues(t, 101, h.Writes[0].Low)
	require.EqualValues(t, 102, h.Writes[1].High)
	require.Len(t, h.Reads, 1)
	require.Len(t, h.Listings[0].Pages, 2)

	require.NoError(t, r.Get("here", "k", func() ([]byte, bool, error) { return nil, false, nil }))
	require.Empty(t, r.History().Check(), "the deletion of unknown outcome may have happened")
	require.NoError(t, r.Get("here", "k", func() ([]byte, bool, error) { return []byte(value), true, nil }))
	require.Len(t, r.History().Check(), 1)
	require.Panics(t, func() { _ = r.Delete(ctx, "here", "k", func(context.Context) error { return nil }) })
}

// One map under a lock is a right store; clients without timestamps of their own
// share its clock.
func TestRecorderIsSafeForConcurrentUse(t *testing.T) {
	r := &history.Recorder{}
	var mu sync.Mutex
	held := map[string]string{}
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for i := range 200 {
				key := string(rune('a' + i%5))
				_ = r.Put(t.Context(), "", key, func(_ context.Context, v []byte) error {
					mu.Lock()
					defer mu.Unlock()
					held[key] = string(v)
					return nil
				})
				_ = r.Get("", key, func() ([]byte, bool, error) {
					mu.Lock()
					defer mu.Unlock()
					v, ok := held[key]
					return []byte(v), ok, nil
				})
				if i%3 == 0 {
					_ = r.Delete(t.Context(), "", key, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						delete(held, key)
						return nil
					})
				}
			}
		})
	}
	g.Wait()
	require.Empty(t, r.History().Check())
	require.Len(t, r.History().Reads, 800)
}
