// Package cassandrastore keeps the store contract on an Apache Cassandra
// cluster, 5.0 or later. It is the only package that knows the driver.
//
// Rows lie in one table, a partition each, and are written at explicit
// timestamps through a quorum of the local data centre; the same at a quorum of
// each data centre is what EachQuorum returns, for movers. Registers change only
// by lightweight transactions at SERIAL. Map nodes are written at EACH_QUORUM,
// so that they are readable wherever the root that names them is.
//
// The package relies on what the schema says about its tables (see Tables);
// Open refuses a cluster whose schema differs in what matters.
package cassandrastore
