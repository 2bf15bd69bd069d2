// Package versions tests objects over a real Cassandra node, by several processes.
package versions
