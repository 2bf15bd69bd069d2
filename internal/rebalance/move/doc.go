// Package move is the state machine of moves (docs/protocol.md). Its input is a bucket's map, the observations of one
// mover, and the time. Its output is the next steps, as data: effects, which package executor carries out.
//
// Everything that a mover must remember is in the map. Seen only saves work: a mover without it waits again before it
// acts on any phase, copies again into the same destination, and reaches the same layout. So several movers may work on
// one bucket.
//
// The package is pure: no I/O; time and random ids are passed in.
package move
