//go:build !race

package balancer_test

const raceDetector = false
