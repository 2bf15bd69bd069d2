//go:build !race

package policysim

const raceDetector = false
