package main

import (
	"fmt"
	"syscall"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
)

// The limit of open files is shared out at the start: a store that can't open a file can't
// write, so connections must leave it enough.
const (
	// otherFiles are for logs, listeners, certificates, counters, the store's files
	// beside its tables, and files that are opened briefly.
	otherFiles = 64
	// mostTables are kept open by the embedded store where there are files enough; over
	// Cassandra as many files are for connections to its nodes and to the counters.
	mostTables = 1000
	// leastFiles leave the embedded store and its clients enough to work with.
	leastFiles = 256
)

// shares is how many files are for what.
type shares struct {
	connections int // of clients, on the S3 address
	tables      int // of the store
}

// shareFiles divides a limit of open files; connections is the most that are wanted.
func shareFiles(limit uint64, connections int) (shares, error) {
	if limit < leastFiles {
		return shares{}, fmt.Errorf("the limit of open files is %d: at least %d are needed; raise it "+
			"(ulimit -n, or LimitNOFILE= of systemd)", limit, leastFiles)
	}
	rest := int(min(limit, 1<<30)) - otherFiles - adminserver.MostConnections
	tables := min(mostTables, rest/2)
	return shares{min(connections, rest-tables), tables}, nil
}

// openFiles returns the process's limit of open files, which Go has raised as far as it may.
func openFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return l.Cur, nil
}
