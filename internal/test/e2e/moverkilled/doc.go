// Package moverkilled kills movers of a real Cassandra node's ranges: each is a
// process of its own, which ends itself with -9 at one failpoint while clients of
// another process go on. It has tests only.
package moverkilled
