// Package executor carries out the moves of one bucket. It runs the effects that package move decides on against a
// store, and reports their results to package move. It decides nothing itself. A move of a range has these tasks, by
// the phase of its batch:
//
//	copying    copy     all rows are written to the destination as copies
//	verifying  compare  missing rows are copied, and copies of lost rows deleted
//	draining   remove   the rows of the source are removed, and a note says where they are now
//	settled    sweep    the deletion markers in the destination are deleted
//
// An executor may be killed at any step and started again, and several executors may work on one bucket at the same
// time: everything that one of them must know is in the map.
package executor
