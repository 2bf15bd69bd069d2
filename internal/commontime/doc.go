// Package commontime gives all processes of a keyspace one common time, from the clocks of the store's servers.
//
// Rows are ordered by timestamps that clients give. A client's own wall clock can't be trusted for that: two
// clients whose clocks differ by 100 ms order their writes wrongly for 100 ms. So a process keeps reading the
// servers' clocks. For each server, the process keeps an interval that surely holds the time of the server's
// clock. From these intervals the process derives two bounds of the common time, earliest and latest. A write
//
//   - gets the latest as its timestamp (Clock.Next),
//   - is acknowledged when the earliest has passed that timestamp (Clock.Passed).
//
// # One data centre
//
// If X was acknowledged before Y began, through any processes of one data centre, Y has the higher timestamp
// (invariant I12 of docs/protocol.md). Proof: the bounds come from a majority of the servers of a data centre,
// so two processes have a server in common. When X was acknowledged, that server's clock was past X's
// timestamp. When Y began, Y's timestamp was not below that server's clock. In between that clock did not go
// back.
//
// # Several data centres
//
// Between data centres the order is needed only where X can be known: X was acknowledged in the one data
// centre, the news of X travelled, and Y begins in the other. So the latest also covers the clocks of a
// majority of the servers of every other data centre, as these clocks were a while ago. The while is half of
// the fastest round trip to one of these servers, or Settled, whichever is less. (Until a server has answered
// enough questions the while is zero: first answers may be late for other reasons than the distance.) As long
// as the clocks agree, no write waits for that.
//
// Proof: a question to a server was sent at q, and the answer showed R. X was acknowledged at x, when that
// server's clock was past X's timestamp. Y begins at y. Its timestamp is at least R + (y-q), at the highest
// speed of a clock, less half of a round trip.
//
//   - x after the reading of R: at x the clock was at most R and the time from the reading to x, at the highest
//     speed. So Y is above X if the rest of y-q is at least half of a round trip. The rest is the time from q to
//     the reading, which is the question's way there, and the time from x to y, which is the way of the news
//     back.
//   - x before the reading of R: X is not above R, and y-q is at least the whole round trip of that answer.
//
// So the assumption about the news is: a question on its way there and the news on its way back take together
// at least half as long as the fastest answer of the last ten minutes. The assumption holds for news that
// travels up to twice as fast as our fastest answer did. The exception: that answer was late by more than the
// question's way takes. If the ways there and back take the same time, it holds for news of any speed. For news
// that takes Settled or longer nothing is assumed.
//
// A process knows only its own round trips, not those of other processes. Every answer is a bound, and the best
// bound is used. While a data centre is cut off, its bound is carried on at the highest speed of a clock. So
// the bound becomes worse by 0.2 ms for each second without an answer. The model docs/model/time-apart.pml
// searches this proof, and shows which mistakes break it.
//
// # Clocks that can't be compared
//
// In the first second of a process, for example, too few servers of a data centre have answered. Until enough
// have, their clocks are assumed to differ from those of this data centre by at most Options.Limit. If the
// clocks are known to differ by more, Next fails in both data centres. It fails also in the one that is ahead:
// its timestamps would stay above those of others after its clocks have been mended.
//
// # Lists of servers
//
// A server counts for the majority as soon as it is in the list of servers, which is read every ten seconds.
// With a list that is older than 25 s nothing is written. Two processes with different lists have a server in
// common if the lists differ by one server, and Cassandra lets servers join at least 30 s apart. Two servers
// may still join or leave sooner. So for a minute after a process has begun, or its list has changed, the
// process covers more than a majority: four of five, or three of three (docs/model/time.pml, -DJOIN). If a
// server fails in that minute, a majority is enough: then only servers that join one at a time are allowed for.
//
// # Timestamps that were read
//
// Every later timestamp is above one that was given to Clock.Seen, whatever the servers answer.
//
// # Assumptions
//
//   - No server's clock goes back, or differs in speed from this machine's clock by more than 200 µs per
//     second.
//   - Of the process's monotonic clock and its wall clock at least one runs.
//   - The two assumptions above: about the news, and about clocks that can't be compared.
//
// While one server's clock is set back, the order of two writes may be wrong by as much as the other servers'
// clocks differ. A wrong clock far from the others is ignored.
//
// The idea is that of TrueTime (Corbett et al., Spanner, OSDI 2012), with bounds measured by Cristian's
// algorithm, and quorums instead of reference clocks.
package commontime
