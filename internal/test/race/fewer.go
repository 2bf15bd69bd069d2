package race

import "testing"

// Fewer returns n, or with the race detector a tenth of n and at least 1. It is for the number of repetitions of a test
// with other random numbers. Concurrent code has races in the first repetitions as well as in the last ones.
//
// Packages that use Fewer must be in AGAIN or SIMULATIONS in the Makefile: make test runs these packages in full,
// without the race detector, too. The same is true of Skip.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/10)
	}
	return n
}

// Skip skips a test with the race detector. It is for tests of numbers, such as costs and sizes, and not of concurrent
// code.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("a matter of numbers, not of races: make test has it without the race detector")
	}
}
