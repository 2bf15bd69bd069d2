//go:build !race

package foresee_test

const raceEnabled = false
