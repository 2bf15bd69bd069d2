// Package commontime gives all processes of a keyspace one time, from the clocks of the
// store's servers.
//
// Rows are ordered by timestamps that clients give. A client's own wall clock can't be trusted
// for that: two clients that differ by 100 ms order their writes wrongly for 100 ms. So a
// process keeps reading the servers' clocks, and keeps for each an interval that surely holds
// its time. From these it derives two bounds of the common time, earliest and latest. A write
//
//   - gets the latest as its timestamp (Clock.Next),
//   - is acknowledged when the earliest has passed that timestamp (Clock.Passed).
//
// So if X was acknowledged before Y began, through any processes, Y has the higher timestamp
// (invariant I12 of docs/protocol.md). Proof: the bounds come from a majority of the servers of
// a data centre, so two processes have a server in common. When X was acknowledged, that
// server's clock was past X's timestamp; when Y began, Y's timestamp was not below that
// server's clock; and that clock did not go back in between.
//
// Between data centres the latest also covers the clocks of a majority of every other data
// centre: as measured, or by Options.Limit, whichever is less.
//
// Assumptions: no server's clock goes back, or differs in speed from this machine's by more
// than 200 µs per second; of the process's monotonic and wall clock at least one runs; and,
// only where data centres can't reach each other, their clocks differ by Options.Limit at most.
// While one server's clock is set back, the order of two writes may be wrong by as much as the
// other servers' clocks differ. A wrong clock far from the others is ignored.
//
// The idea is that of TrueTime (Corbett et al., Spanner, OSDI 2012), with bounds measured by
// Cristian's algorithm, and quorums instead of reference clocks.
package commontime
