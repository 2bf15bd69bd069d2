package main

import (
	"container/list"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// File descriptors are shared out at the start: a store that can't open a file can't
// write, so connections never get those that it needs.
const (
	// otherFiles are for logs, listeners, certificates, counters, the store's files
	// beside its tables, and what is opened for a moment.
	otherFiles = 64
	// adminConnections are kept at once on the admin address.
	adminConnections = 32
	// mostTables are what the embedded store keeps open where there is no want; over
	// Cassandra as many are for the connections to its nodes and to the counters.
	mostTables = 1000
	// leastFiles leave the embedded store and its clients enough to work with.
	leastFiles = 256
)

// shares is what descriptors are for.
type shares struct {
	connections int // of clients, on the S3 address
	tables      int // of the store
}

// shareFiles shares out a limit of open files, with so many connections at most.
func shareFiles(limit uint64, connections int) (shares, error) {
	if limit < leastFiles {
		return shares{}, fmt.Errorf("the limit of open files is %d: at least %d are needed; raise it (ulimit -n, or LimitNOFILE= of systemd)", limit, leastFiles)
	}
	rest := int(min(limit, 1<<30)) - otherFiles - adminConnections
	tables := min(mostTables, rest/2)
	return shares{min(connections, rest-tables), tables}, nil
}

// openFiles is the process's limit of open files; Go has raised it as far as it may.
func openFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return l.Cur, nil
}

// connLimit bounds the connections of one http.Server, whose listener and ConnState
// it is. A connection beyond the limit takes the place of the one that has been
// without a request for longest; while all have one, it waits until one has not.
type connLimit struct {
	net.Listener
	most int

	mu     sync.Mutex
	change sync.Cond
	conns  map[net.Conn]*list.Element // nil: a request is under way
	idle   list.List                  // of idleConn, the longest without a request first
	closed bool
}

type idleConn struct {
	net.Conn
	since time.Time
}

// settleTime is how long a connection without a request keeps its place at least: a
// new one's first request is on its way, or its TLS handshake.
const settleTime = 250 * time.Millisecond

func newConnLimit(l net.Listener, most int) *connLimit {
	c := &connLimit{Listener: l, most: most, conns: map[net.Conn]*list.Element{}}
	c.change.L = &c.mu
	return c
}

// Accept returns the next connection once there is a place for it.
func (l *connLimit) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var old net.Conn // the last one that had to go
	for len(l.conns) >= l.most && !l.closed {
		_, going := l.conns[old]
		if first := l.idle.Front(); first != nil && !going {
			longest := first.Value.(idleConn)
			rest := settleTime - time.Since(longest.since)
			if rest <= 0 {
				old = longest.Conn
				l.conns[old] = nil
				l.idle.Remove(first)
				cut(old)
				continue
			}
			timer := time.AfterFunc(rest, l.wake)
			l.change.Wait()
			timer.Stop()
			continue
		}
		l.change.Wait()
	}
	return c, nil
}

func (l *connLimit) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change.Broadcast()
}

// cut ends a connection; its server notices.
func cut(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn() // a farewell could take long
	}
	_ = c.Close()
}

// Close ends the wait for a place, too.
func (l *connLimit) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wake()
	return l.Listener.Close()
}

// state is told of each connection's state; see http.Server.ConnState.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.conns[c]; e != nil {
		l.idle.Remove(e)
	}
	switch s {
	case http.StateNew, http.StateIdle:
		l.conns[c] = l.idle.PushBack(idleConn{c, time.Now()})
	case http.StateActive:
		l.conns[c] = nil
	default:
		delete(l.conns, c)
	}
	l.change.Broadcast()
}
