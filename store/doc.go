// Package store is the contract of evenkeel's stores: rows in partitions under last-write-wins, immutable map nodes,
// and small registers that change only by compare-and-swap.
//
// The contract promises only what Apache Cassandra guarantees, although an embedded engine could do more. It has no
// transactions across partitions and no snapshots across calls. Tombstones are invisible: a reader finds no row where a
// row was deleted. Package storetest tests implementations.
//
// The package declares types, interfaces and errors, and does no I/O.
package store
