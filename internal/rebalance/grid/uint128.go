package grid

import (
	"cmp"
	"math/big"
	"math/bits"
)

// Uint128 is an unsigned 128-bit number, for sums of squared deviations of row counts. Such sums do not fit into 64
// bits, and a float64 would not distinguish nearly equal ones. Sums and differences wrap around silently. Row counts
// are at most 2^53, so sums of up to 2^20 squares fit.
type Uint128 struct{ Hi, Lo uint64 }

// Square returns v*v, which is exact for every v.
func Square(v int64) Uint128 {
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	hi, lo := bits.Mul64(u, u)
	return Uint128{hi, lo}
}

// Add returns a+b, modulo 2^128.
func (a Uint128) Add(b Uint128) Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Uint128{hi, lo}
}

// Sub returns the difference a-b. The caller must make sure that a is at least b.
func (a Uint128) Sub(b Uint128) Uint128 {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, _ := bits.Sub64(a.Hi, b.Hi, borrow)
	return Uint128{hi, lo}
}

// Cmp compares two numbers. It returns -1 if a is below b, 0 if they are equal, and 1 if a is above b.
func (a Uint128) Cmp(b Uint128) int {
	return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
}

// Big returns a as a new big integer.
func (a Uint128) Big() *big.Int {
	v := new(big.Int).SetUint64(a.Hi)
	v.Lsh(v, 64)
	return v.Or(v, new(big.Int).SetUint64(a.Lo))
}
