package main

import (
	"container/list"
	"context"
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

// connLimit bounds the connections of one http.Server, whose listener, ConnState and
// ConnContext it is. A connection beyond the limit takes the place of the one that has
// been without a request for longest, or where none is, of the one whose client has let the server
// wait for longest, for its body or to read the answer; while none has, it waits.
type connLimit struct {
	net.Listener
	most int
	// tells: the server's handler tells by busy when it works. Else it works as long as a
	// request is under way.
	tells bool

	mu     sync.Mutex
	change sync.Cond
	conns  map[net.Conn]*place
	idle   list.List // of *place: without a request, for longest first
	slow   list.List // of *place: with a request, and waiting for the client
	closed bool
}

// place is that of one connection.
type place struct {
	net.Conn
	in    *list.List // idle or slow; nil: the server works, or it is being cut
	at    *list.Element
	since time.Time
}

const (
	// settleTime is how long a connection without a request keeps its place at least: a
	// new one's first request is on its way, or its TLS handshake.
	settleTime = 250 * time.Millisecond
	// slowTime is how long one keeps it whose client is waited for.
	slowTime = 500 * time.Millisecond
)

func newConnLimit(l net.Listener, most int) *connLimit {
	c := &connLimit{Listener: l, most: most, conns: map[net.Conn]*place{}}
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
		if _, going := l.conns[old]; going {
			l.change.Wait()
			continue
		}
		first, rest := l.longest()
		switch {
		case first == nil:
			l.change.Wait()
		case rest <= 0:
			old = first.Conn
			l.move(first, nil)
			cut(old)
		default:
			timer := time.AfterFunc(rest, l.wake)
			l.change.Wait()
			timer.Stop()
		}
	}
	return c, nil
}

// longest returns the connection that goes first if one has to, and how long it keeps its
// place; nil: none has to go.
func (l *connLimit) longest() (first *place, rest time.Duration) {
	for _, of := range []struct {
		in    *list.List
		keeps time.Duration
	}{{&l.idle, settleTime}, {&l.slow, slowTime}} {
		if front := of.in.Front(); front != nil {
			p := front.Value.(*place)
			return p, of.keeps - time.Since(p.since)
		}
	}
	return nil, 0
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

// move puts a connection at the end of one of the lists, or of none.
func (l *connLimit) move(p *place, to *list.List) {
	if p.in != nil {
		p.in.Remove(p.at)
	}
	if p.in = to; to != nil {
		p.since = time.Now()
		p.at = to.PushBack(p)
	}
}

// state is told of each connection's state; see http.Server.ConnState.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	countHeader(c, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.conns[c]
	if p == nil {
		p = &place{Conn: c}
		l.conns[c] = p
	}
	switch s {
	case http.StateNew, http.StateIdle:
		l.move(p, &l.idle)
	case http.StateActive:
		if l.tells {
			l.move(p, &l.slow)
		} else {
			l.move(p, nil)
		}
	default:
		l.move(p, nil)
		delete(l.conns, c)
	}
	l.change.Broadcast()
}

// connKey is that of the connection in a request's context.
type connKey struct{}

// context is http.Server.ConnContext.
func (l *connLimit) context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// busy is told when the work for a request begins and when it ends.
func (l *connLimit) busy(ctx context.Context, busy bool) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.conns[c]
	if p == nil {
		return
	}
	if busy {
		l.move(p, nil)
		return
	}
	l.move(p, &l.slow)
	l.change.Broadcast()
}
