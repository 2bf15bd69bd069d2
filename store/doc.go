// Package store is the contract that every store of evenkeel keeps: rows under
// last-write-wins in partitions, immutable map nodes, and small registers that
// change only by compare-and-swap.
//
// The contract is shaped on what Apache Cassandra guarantees, not on what an
// embedded engine could do. It promises no transaction across partitions, no
// snapshot across calls, and no sight of tombstones: a deleted row is simply
// not there. Package storetest holds every implementation to it, to the letter.
//
// The package itself is pure: it declares types, interfaces and errors.
package store
