// Package cassandratest runs real Cassandra nodes for tests, benchmarks and
// try-outs: the jars of one fixed release from Maven Central, started with the
// flags that Java 17 needs, on loopback addresses of their own.
//
// A node is up in five to fifteen seconds, so tests share one where they can
// (Shared, and the command with-cassandra around `go test ./...`) and start
// nodes of their own only when they kill them or need a special configuration.
//
// Nodes die with the process that started them, also when that is killed
// (Linux). They need Linux's whole loopback network 127.0.0.0/8.
package cassandratest
