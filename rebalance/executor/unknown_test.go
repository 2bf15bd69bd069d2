package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// An effect that is none of migrate's is not taken for done.
func TestUnknownEffects(t *testing.T) {
	x := New(nil, nil, store.BucketID{}, Options{})
	require.ErrorIs(t, x.effect(t.Context(), nil, nil), store.InvalidArgument)
	require.Equal(t, "unknown", pointOf(nil))
}
