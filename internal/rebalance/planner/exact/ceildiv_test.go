package exact

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
)

// The oracle is math/big.
func TestCeilDivAgainstBig(t *testing.T) {
	most := big.NewInt(far)
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) grid.Uint128 {
			high := rapid.Uint64Range(0, 1<<40).Draw(t, name+".hi")
			return grid.Uint128{Hi: high, Lo: rapid.Uint64().Draw(t, name+".lo")}
		}
		a, b := number("a"), number("b")
		if rapid.Bool().Draw(t, "near") {
			b = grid.Uint128{Hi: a.Hi, Lo: a.Lo ^ rapid.Uint64Range(0, 1<<20).Draw(t, "xor")}
		}
		d := rapid.Int64Range(1, 1<<53).Draw(t, "d")
		diff := new(big.Int).Sub(a.Big(), b.Big())
		// Ceiling division: minus the Euclidean quotient of minus diff.
		want := new(big.Int).Neg(new(big.Int).Div(new(big.Int).Neg(diff), big.NewInt(d)))
		if want.CmpAbs(most) > 0 {
			want = new(big.Int).Mul(most, big.NewInt(int64(want.Sign())))
		}
		require.Equal(t, want.Int64(), ceilDiv(a, b, d))
	})
}
