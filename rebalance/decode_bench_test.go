package rebalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

// A layout of 100,000 partitions is 17 MB of JSON.
func BenchmarkDecodeLayout(b *testing.B) {
	l, limits := plannertest.Huge(rand.New(rand.NewPCG(1, 1)), 100000)
	data, err := rebalance.EncodeLayout(l, limits)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, _, err := rebalance.DecodeLayout(data)
		require.NoError(b, err)
	}
}
