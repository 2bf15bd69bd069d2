// Package move is the state machine of moves: from a bucket's map, what has
// been observed and the time it tells what to do next. It does nothing itself:
// what it returns are effects, as data, which package executor carries out.
//
// Everything that a mover must remember is in the map. Seen only saves work: a
// mover that lost it, or that never had it, waits anew before it acts on any
// phase, copies again into the same destination, and comes to the same layout.
// So several movers may work on one bucket without harm.
//
// The package is pure: no I/O, neither the time nor chance of its own.
package move
