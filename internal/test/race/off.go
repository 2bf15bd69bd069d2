//go:build !race

package race

// Enabled is false, as the race detector is off in this build.
const Enabled = false
