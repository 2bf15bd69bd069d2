// Package oncassandra tests the whole over a real Cassandra node, with leases
// over the network.
package oncassandra
