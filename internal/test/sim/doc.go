// Package sim is a deterministic simulation of clients and movers over one bucket. A mover is a process that moves
// ranges of keys between partitions. Real listing clients and real executors of moves run over a store in memory. A
// seeded scheduler decides at every store call which goroutine continues: a call waits before it is executed, and often
// its answer waits, too. Time is virtual, in a testing/synctest bubble. Movers are killed at their failpoints and
// replaced, stall and wake up, and work two at a time. The store loses answers, and applies writes late or twice. A
// client may delete the bucket meanwhile.
//
// The simulation has two forms. In the embedded form all clients and movers share a map client. In the network form
// (Config.Net) each client and each mover is a process of its own. Its clocks drift, its wall clock is set, its machine
// is suspended, and it pauses past its lease or dies. Reads of registers are stale until a process acknowledges the
// register, roots are read torn, and timestamps come from one source or from clocks that differ. With Config.Centres
// the processes are in two data centres, which have their own rows. Writes arrive late in the other data centre, or are
// lost until a repair, and cuts of the link fail the calls that need both. An answer must then fit what its own data
// centre has acknowledged or shown.
//
// Every step is checked against the invariants of the move protocol, and every answer against a register that keeps the
// highest timestamp (proof.go and watch.go). The text of a failure begins with the invariant, I1 to I11 of
// docs/protocol.md. After a run package history checks all calls again, and searches for a linear order that explains
// them.
//
// On a stage (stage.go) hours pass instead of seconds, in two data centres whose processes share a map client. Rules of
// retention are applied (retention.go), versions of objects are made, deleted and cleaned (objects.go), rows of another
// store are copied into a bucket (adopting.go), and the store is put back to snapshots and repaired (restoring.go).
// Each of these except the last has its own record of writes against which answers are checked.
//
// Each field of Mistakes breaks the protocol in one way. Tests show that the simulation finds each mistake.
//
// The same Config gives the same run. Runs of objects, adoptions and restores mostly do, as they draw IDs and pauses at
// random.
package sim
