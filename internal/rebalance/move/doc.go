// Package move is the state machine of moves (docs/protocol.md). From a bucket's map, what
// was observed and the time it decides what to do next, and returns that as data: effects,
// which package executor carries out.
//
// Everything that a mover must remember is in the map. Seen only saves work: a mover
// without it waits again before it acts on any phase, copies again into the same
// destination, and reaches the same layout. So several movers may work on one bucket.
//
// The package is pure: no I/O; time and random ids are passed in.
package move
