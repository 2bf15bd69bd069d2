// Package cassandratest runs real Cassandra nodes for tests, benchmarks and trials. The nodes run the jars of one fixed
// release from Maven Central, with the flags that Java 17 needs, on loopback addresses of their own.
//
// A node starts in five to fifteen seconds. So tests share a node where they can (Shared, and the command
// with-cassandra around `go test ./...`). Tests start nodes of their own only if they kill the nodes, or need a special
// configuration.
//
// On Linux, nodes die with the process that started them, even if that process is killed. Nodes need Linux's whole
// loopback network 127.0.0.0/8.
package cassandratest
