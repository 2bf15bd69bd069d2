// Package livemoves moves the ranges of a bucket on a real Cassandra node while
// clients write and list it, and measures what a move costs and what it takes from
// the foreground.
package livemoves
