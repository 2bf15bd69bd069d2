// Package sim is a deterministic simulation of clients and movers over one
// bucket. Real listing clients and real executors run over a store in memory,
// and a seeded scheduler decides at every store call which goroutine continues: a call
// waits before it is executed, and often its answer waits too. Time is virtual, in a
// testing/synctest bubble. Movers are killed at their failpoints and replaced,
// stall and wake up, and work two at a time; the store loses answers and lets
// writes land late, or twice; a client may delete the bucket meanwhile.
//
// It simulates both forms. In the embedded one all share a map client. In the network
// form (Config.Net) each client and each mover is a process of its own: its clocks
// drift, its wall clock is set, its machine is suspended, it pauses past its lease
// or dies; reads of registers are stale until a process acknowledges the register, roots are read
// torn, and timestamps come from one source or from clocks that differ. With Config.Centres the processes are in two
// data centres, which have rows of their own: writes come to the other one late, or are lost until a repair, and cuts
// of the link fail what needs both. An answer is then held to what its own data centre has acknowledged or shown.
//
// Every step is checked against the invariants of the move protocol, and every answer
// against a register that keeps the highest timestamp (proof.go and watch.go). Failures
// begin with the invariant, I1 to I11 of docs/protocol.md. After a run package history
// checks all calls again and searches for a linear order that explains them.
//
// On a stage (stage.go) hours pass instead of seconds, in two data centres whose processes share a map client: rules of
// retention are applied (retention.go), versions of objects are made, deleted and cleaned (objects.go), rows of another
// place are adopted (adopting.go), and the store is put back to snapshots and repaired (restoring.go). All but the last
// one have registers of their own to which answers are held.
//
// Each field of Mistakes breaks the protocol in one way; tests show that the simulation
// finds it.
//
// The same Config gives the same run; of objects, adoptions and restores mostly, which draw IDs and
// pauses at random.
package sim
