// Package sim is a deterministic simulation of clients and movers over one
// bucket. Real listing clients and real executors run over a store in memory,
// and a seeded scheduler decides at every store call who goes on: a call waits
// before it is done, and often its answer waits too. Time is that of a
// testing/synctest bubble. Movers are killed at their failpoints and replaced,
// stall and wake up, and work two at a time; the store loses answers and lets
// writes land late, or twice.
//
// Every step is held to the invariants of the move protocol, by name, and every
// answer to what a register that keeps the highest timestamp may say. Each of
// Mistakes breaks the protocol in one way, so that it can be shown that the
// simulation notices.
//
// The same Config gives the same run.
package sim
