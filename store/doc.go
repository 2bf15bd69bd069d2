// Package store is the contract of evenkeel's stores: rows in partitions under
// last-write-wins, immutable map nodes, and small registers that change only by
// compare-and-swap.
//
// The contract is what Apache Cassandra guarantees, not what an embedded engine could do.
// It has no transactions across partitions and no snapshots across calls, and tombstones
// are invisible: a deleted row is not there. Package storetest tests implementations.
//
// The package declares types, interfaces and errors, and does no I/O.
package store
