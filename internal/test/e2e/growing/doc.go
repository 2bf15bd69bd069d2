// Package growing loads buckets that nobody looks after, and watches that they stay in
// shape: embedded, and on a real Cassandra node with a real Redis. The sizes are small
// by default and given by the environment for the full measure; see bench/results/parts.md.
package growing
