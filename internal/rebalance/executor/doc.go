// Package executor carries out the moves of one bucket: it runs the effects that package
// move decides on against a store, and reports their results to it. It decides nothing.
//
// An executor may be killed at any step and started again, and several may work on one
// bucket at the same time: everything that one must know is in the map.
package executor
