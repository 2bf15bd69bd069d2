//go:build race

package policysim

const raceDetector = true
