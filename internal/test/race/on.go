//go:build race

// Package race tells tests whether the race detector is on, which makes them several times
// slower.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
