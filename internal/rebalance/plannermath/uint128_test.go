package plannermath

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The oracle is math/big.
func TestAgainstBig(t *testing.T) {
	far := big.NewInt(Far)
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) Uint128 {
			return Uint128{rapid.Uint64Range(0, 1<<40).Draw(t, name+".hi"), rapid.Uint64().Draw(t, name+".lo")}
		}
		a, b := number("a"), number("b")
		if rapid.Bool().Draw(t, "near") {
			b = Uint128{a.Hi, a.Lo ^ rapid.Uint64Range(0, 1<<20).Draw(t, "xor")}
		}
		require.Equal(t, a.Big().Cmp(b.Big()), a.Cmp(b))
		require.Zero(t, a.Add(b).Big().Cmp(new(big.Int).Add(a.Big(), b.Big())))
		if a.Cmp(b) >= 0 {
			require.Zero(t, a.Sub(b).Big().Cmp(new(big.Int).Sub(a.Big(), b.Big())))
		}

		d := rapid.Int64Range(1, 1<<53).Draw(t, "d")
		diff := new(big.Int).Sub(a.Big(), b.Big())
		// Ceiling division: minus the Euclidean quotient of minus diff.
		want := new(big.Int).Neg(new(big.Int).Div(new(big.Int).Neg(diff), big.NewInt(d)))
		if want.CmpAbs(far) > 0 {
			want = new(big.Int).Mul(far, big.NewInt(int64(want.Sign())))
		}
		require.Equal(t, want.Int64(), CeilDiv(a, b, d))

		v := rapid.Int64().Draw(t, "v")
		require.Zero(t, Square(v).Big().Cmp(new(big.Int).Mul(big.NewInt(v), big.NewInt(v))))
	})
}
