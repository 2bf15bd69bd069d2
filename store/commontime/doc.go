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
// So if X was acknowledged before Y began, through any processes of one data centre, Y has the
// higher timestamp (invariant I12 of docs/protocol.md). Proof: the bounds come from a majority of
// the servers of a data centre, so two processes have a server in common. When X was acknowledged,
// that server's clock was past X's timestamp; when Y began, Y's timestamp was not below that
// server's clock; and that clock did not go back in between.
//
// Between data centres the order is needed only for what can be known: X was acknowledged in the
// one, the news travelled, and Y begins in the other. So the latest covers the clocks of a majority
// of every other data centre's servers as they were a while ago: half of the fastest round trip to
// one of them, or Settled, whichever is less. (Before a server has answered enough questions it is
// nothing: that the first answers were late says nothing about the way.) While clocks agree no write waits for that.
//
// Proof: a server showed R in answer to a question that was sent at q. X was acknowledged at x, when
// that server's clock was past X's timestamp. Y begins at y, and its timestamp is at least R + (y-q),
// at the highest speed, less half of a round trip. If x was after the reading of R, the clock was at
// most R and the time from that reading to x, at the highest speed. So Y is above X if the rest of
// y-q is no less than the half: the time from q to the reading, which is the question's way there,
// and the time from x to y, which is the way of the news back. If x was before the reading, X is not
// above R, and y-q is at least the whole round trip of that answer.
//
// So the assumption about the news is: a question on its way there and the news on its way back take
// at least half as long, together, as the fastest answer of the last ten minutes. That holds for news
// that travels up to twice as fast as our fastest answer did, unless that answer was late by more
// than the question's way takes; and where the ways there and back take the same, for news of any
// speed. What takes Settled needs no assumption. The ways are those of this
// process; nothing is known of others. Every answer is a bound: the best is used, and in a cut it is
// carried on at the highest speed, which is 0.2 ms for each second without an answer. The model
// docs/model/time-apart.pml searches this, and has the mistakes.
//
// While too few servers of a data centre have answered a process, as in its first second, their
// clocks are assumed to differ from the near ones by Options.Limit at most. Where they are known to
// differ by more, Next fails in both data centres: in the one ahead, too, as its timestamps would
// stay above others when its clocks have been mended.
//
// A server counts for the majority from when it is in the list, which is read every ten seconds.
// Two processes with different lists have a server in common if these differ by one server. So
// servers may join or leave one at a time, a minute apart; Cassandra asks for two minutes.
//
// Timestamps that were given to Seen are exceeded without an answer from anywhere.
//
// Assumptions: no server's clock goes back, or differs in speed from this machine's by more
// than 200 µs per second; of the process's monotonic and wall clock at least one runs; and the two
// of above, about the news and about clocks that can't be compared.
// While one server's clock is set back, the order of two writes may be wrong by as much as the
// other servers' clocks differ. A wrong clock far from the others is ignored.
//
// The idea is that of TrueTime (Corbett et al., Spanner, OSDI 2012), with bounds measured by
// Cristian's algorithm, and quorums instead of reference clocks.
package commontime
