package race

import "testing"

// Fewer returns n, with the race detector a fifth of it and at least 1: of what a test repeats with other random
// numbers. A race is found by what runs at once, of which the first repetitions have as much as the last ones.
//
// Packages that use it are in AGAIN or SIMULATIONS in the Makefile: make test runs them without the race detector, too,
// in full. The same is true of Skip.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/5)
	}
	return n
}

// Skip leaves out a test that is about numbers, as costs and sizes, and not about what runs at once.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("a matter of numbers, not of races: make test has it without the race detector")
	}
}
