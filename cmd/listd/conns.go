package main

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/base/webguard"
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
// ConnContext it is, and those of one client. A client gets one more connection while it
// has less than three times as many as are free: so one client has three quarters at most,
// and any number of clients leave some.
//
// Beyond that a client's new connection takes the place of one of its own: of the one that
// has been idle for longest; if none is idle, of the one whose client has been slow for
// longest, to send a body or to read the answer, and for slowTime at least. If there is
// none, the new connection is closed. A client without connections takes anybody's place.
type connLimit struct {
	net.Listener
	most int
	// tells: the server's handler tells by busy when it works. Else it works as long as a
	// request is under way.
	tells bool

	mu      sync.Mutex
	conns   map[net.Conn]*place
	clients map[netip.Prefix]*peer
	waiting queues
}

// queues have the places of connections that wait for their client; the one that has
// waited for longest is the first.
type queues [2]list.List // of *place

const (
	idle = iota // it waits for a request
	slow        // it waits for a body, or until the answer is read
)

// slowTime is how long a slow connection keeps its place at least.
const slowTime = 500 * time.Millisecond

// first is the one that goes first; nil: none has to.
func (q *queues) first() *place {
	if front := q[idle].Front(); front != nil {
		return front.Value.(*place)
	}
	if front := q[slow].Front(); front != nil && time.Since(front.Value.(*place).since) >= slowTime {
		return front.Value.(*place)
	}
	return nil
}

// peer is a client with its connections.
type peer struct {
	addr    netip.Prefix
	n       int
	waiting queues
}

// place is that of one connection.
type place struct {
	net.Conn
	of      *peer
	in      int           // of the queues
	all, at *list.Element // in there; nil: the server works
	since   time.Time
}

func newConnLimit(l net.Listener, most int) *connLimit {
	return &connLimit{Listener: l, most: most, conns: map[net.Conn]*place{}, clients: map[netip.Prefix]*peer{}}
}

// Accept returns the next connection that gets a place.
func (l *connLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		old, ok := l.admit(c)
		if old != nil {
			cut(old)
		}
		if ok {
			return c, nil
		}
		cut(c)
	}
}

// admit gives a connection a place, if need be that of another one, which it returns.
func (l *connLimit) admit(c net.Conn) (instead net.Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clients[webguard.Client(c.RemoteAddr().String())]
	longest := &l.waiting // a newcomer's
	if of != nil {
		longest = &of.waiting
	}
	if free := l.most - len(l.conns); of == nil && free > 0 || of != nil && of.n < 3*free {
		return nil, true
	}
	p := longest.first()
	if p == nil {
		return nil, false
	}
	l.leave(p)
	return p.Conn, true
}

// cut ends a connection; its server notices.
func cut(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn() // a farewell could take long
	}
	_ = c.Close()
}

// wait notes that a connection waits for its client from now on, in a queue.
func (l *connLimit) wait(p *place, in int) {
	l.work(p)
	p.since, p.in, p.all, p.at = time.Now(), in, l.waiting[in].PushBack(p), p.of.waiting[in].PushBack(p)
}

// work notes that the server works for a connection: it keeps its place.
func (l *connLimit) work(p *place) {
	if p.at != nil {
		l.waiting[p.in].Remove(p.all)
		p.of.waiting[p.in].Remove(p.at)
		p.all, p.at = nil, nil
	}
}

// leave gives up a place.
func (l *connLimit) leave(p *place) {
	l.work(p)
	delete(l.conns, p.Conn)
	if p.of.n--; p.of.n == 0 {
		delete(l.clients, p.of.addr)
	}
}

// state is told of each connection's state; see http.Server.ConnState.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	countHeader(c, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.conns[c]
	switch {
	case s == http.StateNew:
		addr := webguard.Client(c.RemoteAddr().String())
		of := l.clients[addr]
		if of == nil {
			of = &peer{addr: addr}
			l.clients[addr] = of
		}
		of.n++
		p = &place{Conn: c, of: of}
		l.conns[c] = p
		l.wait(p, idle)
	case p == nil: // its place was given away
	case s == http.StateIdle:
		l.wait(p, idle)
	case s == http.StateActive && l.tells:
		l.wait(p, slow)
	case s == http.StateActive:
		l.work(p)
	default:
		l.leave(p)
	}
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
	switch p := l.conns[c]; {
	case p == nil:
	case busy:
		l.work(p)
	default:
		l.wait(p, slow)
	}
}
