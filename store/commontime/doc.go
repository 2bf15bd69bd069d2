// Package commontime gives all processes of a keyspace one time: the clocks of the
// store's servers, bounded from both sides.
//
// Rows are ordered by timestamps that clients give. A client's own wall clock can't
// be trusted for that: two clients that differ by 100 ms order their writes wrongly
// for 100 ms. So a process asks the servers for their time, again and again, and
// keeps for each of them an interval that surely holds its clock. From these it
// derives two bounds of the common time, earliest and latest, and
//
//   - stamps a write with the latest (Clock.Next),
//   - acknowledges it when the earliest has passed that stamp (Clock.Passed).
//
// If X was acknowledged before Y began, through whichever processes, then Y has the
// higher timestamp. The proof: the bounds come from a majority of the servers of a
// data centre, so two processes have a server in common. When X was acknowledged,
// that server's clock was past X's stamp; when Y began, Y's stamp was not below that
// server's clock; and that clock did not go back in between.
//
// Between data centres the stamp also covers a majority of every other data centre's
// clocks: as measured, or as far as Options.Limit lets clocks be apart, whichever is
// less.
//
// What is assumed: no server's clock goes back, or runs faster or slower than this
// machine's by more than 200 µs per second; a process has at least one clock, of its
// monotonic and its wall clock, that runs; and, only where data centres can't reach each
// other, their clocks differ by Options.Limit at most. While the clock of one server is
// set back, the order of two writes may be wrong by as much as the other servers' clocks
// differ; one that is merely wrong, and far from the others, is left out.
//
// The idea is that of TrueTime (Corbett et al., Spanner, OSDI 2012), with bounds
// measured as Cristian's algorithm does it, and with quorums instead of reference
// clocks.
package commontime
