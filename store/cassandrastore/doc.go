// Package cassandrastore implements the contract of a store on an Apache Cassandra cluster of version 5.0 or later. It
// is the only package of the product that imports the driver.
//
// Rows are in one table, with a partition of the table for each partition of the store. They are written with explicit
// timestamps through a quorum of the local data centre. EachQuorum returns the same rows at a quorum of each data
// centre, for moves. Registers change only by lightweight transactions at SERIAL. Map nodes are written at EACH_QUORUM,
// so that they can be read wherever their root can.
//
// The package depends on the schema of its tables (see PrintSchema). Open refuses a cluster whose schema differs where
// correctness depends on it.
package cassandrastore
