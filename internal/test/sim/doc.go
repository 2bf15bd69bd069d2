// Package sim is a deterministic simulation of clients and movers over one
// bucket. Real listing clients and real executors run over a store in memory,
// and a seeded scheduler decides at every store call who goes on: a call waits
// before it is done, and often its answer waits too. Time is that of a
// testing/synctest bubble. Movers are killed at their failpoints and replaced,
// stall and wake up, and work two at a time; the store loses answers and lets
// writes land late, or twice; a client may delete the bucket meanwhile.
//
// It has both forms. In the embedded one all share a map client. In the network
// form (Config.Net) each client and each mover is a process of its own: its clocks
// drift, its wall clock is set, its machine is suspended, it pauses past its lease
// or dies; reads of registers lag behind until somebody acknowledges, roots are read
// torn, and timestamps come from one source or from clocks that differ.
//
// Every step is held to the invariants of the move protocol, by name (proof.go and
// watch.go), and every answer to what a register that keeps the highest timestamp may
// say. When a run is over, package history judges all of its calls once more and
// searches for an order that explains them.
//
// Each of Mistakes breaks the protocol in one way, so that it can be shown that the
// simulation notices.
//
// The same Config gives the same run.
package sim
