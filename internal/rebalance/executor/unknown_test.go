package executor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/store"
)

// An effect of an unknown type fails.
func TestUnknownEffects(t *testing.T) {
	x := New(nil, nil, store.BucketID{}, Options{})
	require.ErrorIs(t, x.effect(t.Context(), nil, nil), store.InvalidArgument)
	require.Equal(t, "unknown", pointOf(nil))
}

// A scan whose context has ended fails before it reads.
func TestScanAfterItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := New(nil, nil, store.BucketID{}, Options{}) // without a store: a read panics
	require.ErrorIs(t, x.scan(ctx, x.o.Pace, store.Partition{}, store.Bounds{}, nil), context.Canceled)
}

// A copy of unknown outcome is remembered until the same row, or a newer one of its key, was
// written. A refusal of a later try says nothing about the first.
func TestCopiesOfUnknownOutcome(t *testing.T) {
	x, task := New(nil, nil, store.BucketID{}, Options{}), &move.Task{}
	row := func(key string, ts store.Timestamp) store.Row { return store.Row{Key: []byte(key), Timestamp: ts} }
	unsure := func() map[string]store.Timestamp { return x.unsure[rangeKey(task)] }
	x.sent(task, []store.Row{row("a", 5)}, nil)
	require.Empty(t, unsure())
	x.sent(task, []store.Row{row("a", 5), row("b", 5)}, store.Errorf(store.Timeout, "lost"))
	x.sent(task, []store.Row{row("a", 3), row("c", 3)}, store.Errorf(store.Timeout, "lost"))
	want := map[string]store.Timestamp{"a": 5, "b": 5, "c": 3}
	require.Equal(t, want, unsure())
	x.sent(task, []store.Row{row("a", 9)}, store.Errorf(store.InvalidArgument, "no"))
	x.sent(task, []store.Row{row("a", 4)}, nil)
	require.Equal(t, want, unsure())
	x.sent(task, []store.Row{row("a", 5), row("b", 6)}, nil)
	require.Equal(t, map[string]store.Timestamp{"c": 3}, unsure())
}
