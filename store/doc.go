// Package store is the contract of evenkeel's stores. A store keeps
//   - rows in partitions: of several writes of a row, the write with the highest timestamp wins;
//   - nodes of buckets' maps: blocks of bytes that never change;
//   - registers: small records that change only by compare-and-swap.
//
// The contract promises only what Apache Cassandra guarantees, although an embedded engine could do more. It has no
// transactions across partitions and no snapshots across calls. Tombstones are invisible: a reader finds no row where a
// row was deleted. Package storetest tests implementations.
//
// The package declares types, interfaces and errors, and does no I/O.
package store
