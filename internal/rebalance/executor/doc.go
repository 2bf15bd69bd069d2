// Package executor carries out the moves of one bucket: it does the effects that
// package migrate decides on, against a real store, and tells migrate what came
// of them. It decides nothing itself.
//
// It may be killed at any step and started again, and several may work on one
// bucket at the same time: all that one must know is in the map.
package executor
