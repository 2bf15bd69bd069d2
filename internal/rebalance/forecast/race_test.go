//go:build race

package forecast_test

// raceEnabled: the race detector makes all ten times slower.
const raceEnabled = true
