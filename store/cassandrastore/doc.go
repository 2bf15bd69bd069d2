// Package cassandrastore is the store contract on an Apache Cassandra cluster, 5.0 or later.
// Of the product only it imports the driver.
//
// Rows are in one table, a partition each. They are written with explicit timestamps through
// a quorum of the local data centre; EachQuorum returns the same rows at a quorum of each data
// centre, for movers. Registers change only by lightweight transactions at SERIAL. Map nodes
// are written at EACH_QUORUM, so that they are readable wherever their root is.
//
// The package depends on the schema of its tables (see Tables). Open refuses a cluster whose
// schema differs where correctness depends on it.
package cassandrastore
