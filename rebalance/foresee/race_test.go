//go:build race

package foresee_test

// raceEnabled: the race detector makes all ten times slower.
const raceEnabled = true
