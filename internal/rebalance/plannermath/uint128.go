// Package plannermath is the arithmetic that planners need beyond 64 bits: a
// sum of squared deviations of row counts does not fit into an int64, and a
// float would make two different plans look equally even.
package plannermath

import (
	"math/big"
	"math/bits"
)

// Uint128 is an unsigned 128-bit number. Its zero value is 0. Additions and
// subtractions wrap silently; callers bound their operands (row counts are at
// most 2^53, so 2^20 squares still fit).
type Uint128 struct{ Hi, Lo uint64 }

// Square returns v*v.
func Square(v int64) Uint128 {
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	hi, lo := bits.Mul64(u, u)
	return Uint128{hi, lo}
}

// Add returns a+b.
func (a Uint128) Add(b Uint128) Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Uint128{hi, lo}
}

// Sub returns a-b; a must not be below b.
func (a Uint128) Sub(b Uint128) Uint128 {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, _ := bits.Sub64(a.Hi, b.Hi, borrow)
	return Uint128{hi, lo}
}

// Cmp returns -1, 0 or 1 as a is below, equal to or above b.
func (a Uint128) Cmp(b Uint128) int {
	switch {
	case a == b:
		return 0
	case a.Hi < b.Hi || (a.Hi == b.Hi && a.Lo < b.Lo):
		return -1
	}
	return 1
}

// Big returns a as a big integer of its own.
func (a Uint128) Big() *big.Int {
	v := new(big.Int).SetUint64(a.Hi)
	v.Lsh(v, 64)
	return v.Or(v, new(big.Int).SetUint64(a.Lo))
}

// Far is where CeilDiv saturates: farther than any sum of a few row
// counts, and small enough that such sums added to it do not overflow.
const Far = int64(1) << 61

// CeilDiv returns (a-b)/d rounded up, for d > 0, saturated at plus or minus Far.
func CeilDiv(a, b Uint128, d int64) int64 {
	if a.Cmp(b) >= 0 {
		return divide(a.Sub(b), d, true)
	}
	return -divide(b.Sub(a), d, false)
}

func divide(v Uint128, d int64, up bool) int64 {
	if v.Hi >= uint64(d) {
		return Far
	}
	q, r := bits.Div64(v.Hi, v.Lo, uint64(d))
	if up && r > 0 && q < uint64(Far) {
		q++
	}
	if q > uint64(Far) {
		return Far
	}
	return int64(q)
}
