package main

import (
	"fmt"
	"syscall"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
)

// otherFiles, mostTables and leastFiles divide the process's limit of open files among its users when the server
// starts. Client connections must leave enough files to the store, as a store that cannot open a file cannot write:
//
//	limit >= otherFiles + admin connections + table files of the store + client connections
const (
	// otherFiles is the number of files for all other uses: logs, listeners, certificates, counters, the store's files
	// except its tables, and files that are open only briefly.
	otherFiles = 64
	// mostTables is the largest number of table files that the embedded store keeps open. With Cassandra the same
	// number of files is left for connections to Cassandra's nodes and to the counters.
	mostTables = 1000
	// leastFiles is the lowest limit of open files with which the server starts.
	leastFiles = 256
)

// shares says how the process's limit of open files is divided between client connections and the store.
type shares struct {
	connections int // of clients on the S3 address
	tables      int // table files of the store
}

// shareFiles divides limit, the process's limit of open files, between client connections and the store. connections is
// the wanted number of client connections. If limit is too low for that number, the result has fewer connections. A
// limit below leastFiles is an error.
func shareFiles(limit uint64, connections int) (shares, error) {
	if limit < leastFiles {
		return shares{}, fmt.Errorf("the limit of open files is %d: at least %d are needed; raise it "+
			"(ulimit -n, or LimitNOFILE= of systemd)", limit, leastFiles)
	}
	rest := int(min(limit, 1<<30)) - otherFiles - adminserver.MostConnections
	tables := min(mostTables, rest/2)
	return shares{min(connections, rest-tables), tables}, nil
}

// openFiles returns the limit of open files of this process. The Go runtime has already raised the limit to the hard
// limit.
func openFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return l.Cur, nil
}
