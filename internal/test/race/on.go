//go:build race

// Package race tells tests whether the race detector is on, which makes tests several times slower.
package race

// Enabled is true, as the race detector is on in this build.
const Enabled = true
