package grid_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
)

// The oracle is math/big.
func TestUint128AgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) grid.Uint128 {
			high := rapid.Uint64Range(0, 1<<40).Draw(t, name+".hi")
			return grid.Uint128{Hi: high, Lo: rapid.Uint64().Draw(t, name+".lo")}
		}
		a, b := number("a"), number("b")
		if rapid.Bool().Draw(t, "near") {
			b = grid.Uint128{Hi: a.Hi, Lo: a.Lo ^ rapid.Uint64Range(0, 1<<20).Draw(t, "xor")}
		}
		require.Equal(t, a.Big().Cmp(b.Big()), a.Cmp(b))
		require.Zero(t, a.Add(b).Big().Cmp(new(big.Int).Add(a.Big(), b.Big())))
		if a.Cmp(b) >= 0 {
			require.Zero(t, a.Sub(b).Big().Cmp(new(big.Int).Sub(a.Big(), b.Big())))
		}
		v := rapid.Int64().Draw(t, "v")
		require.Zero(t, grid.Square(v).Big().Cmp(new(big.Int).Mul(big.NewInt(v), big.NewInt(v))))
	})
}
