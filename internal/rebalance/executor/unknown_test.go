package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/store"
)

// An effect that is none of migrate's is not taken for done.
func TestUnknownEffects(t *testing.T) {
	x := New(nil, nil, store.BucketID{}, Options{})
	require.ErrorIs(t, x.effect(t.Context(), nil, nil), store.InvalidArgument)
	require.Equal(t, "unknown", pointOf(nil))
}

// What is not known to have arrived stays in mind until the same row, or a newer one of its
// key, has; a refusal of a later try tells nothing of the first.
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
