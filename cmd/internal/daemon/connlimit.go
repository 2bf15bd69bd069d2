package daemon

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/webguard"
)

// ConnLimit bounds the connections of a server and those of each client. A client gets
// another connection while it has less than three times as many as are free (see
// webguard.MayTake).
//
// Beyond that a client's new connection replaces one of its own: the one that has been
// idle longest; if none is idle, the one whose client has been slow longest to send a body
// or to read an answer, for SlowTime at least. If there is none, the new connection is
// closed. A client without connections may replace any client's.
type ConnLimit struct {
	net.Listener
	most         int
	handlerTells bool

	mu      sync.Mutex
	conns   map[net.Conn]*place
	clients map[netip.Prefix]*peer
	waiting queues
}

// LimitConns limits the connections of a server, which serves on the ConnLimit from then on.
// With handlerTells the server's handler calls Busy; else the server counts as working for a
// connection from a request's first byte to its answer's last.
func LimitConns(l net.Listener, most int, s *http.Server, handlerTells bool) *ConnLimit {
	c := &ConnLimit{
		Listener: l, most: most, handlerTells: handlerTells,
		conns: map[net.Conn]*place{}, clients: map[netip.Prefix]*peer{},
	}
	s.ConnState, s.ConnContext = c.state, func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return c
}

// queues hold the connections that wait for their client, the longest waiting first.
type queues [2]list.List // of *place

const (
	idle = iota // waits for a request
	slow        // waits for a body, or for the answer to be read
)

// SlowTime is how long a slow connection keeps its place at least.
const SlowTime = 500 * time.Millisecond

// first returns the connection to replace, or nil.
func (q *queues) first() *place {
	if front := q[idle].Front(); front != nil {
		return front.Value.(*place)
	}
	if front := q[slow].Front(); front != nil && time.Since(front.Value.(*place).since) >= SlowTime {
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
	in      int           // index of the queue
	all, at *list.Element // in the limit's queue and in the peer's; nil: the server works
	since   time.Time
}

// Accept returns the next connection that gets a place.
func (l *ConnLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		old, ok := l.admit(c)
		if old != nil {
			closeConn(old)
		}
		if ok {
			return c, nil
		}
		closeConn(c)
	}
}

// admit reports whether a connection gets a place, and which one it replaces, if any.
func (l *ConnLimit) admit(c net.Conn) (replaced net.Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clients[webguard.Client(c.RemoteAddr().String())]
	queues := &l.waiting
	has := 0
	if of != nil {
		queues, has = &of.waiting, of.n
	}
	if webguard.MayTake(has, l.most-len(l.conns)) {
		return nil, true
	}
	p := queues.first()
	if p == nil {
		return nil, false
	}
	l.leave(p)
	return p.Conn, true
}

// closeConn closes a connection without TLS's farewell, which could take long.
func closeConn(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// wait puts a connection into a queue: it waits for its client from now on.
func (l *ConnLimit) wait(p *place, in int) {
	l.work(p)
	p.since, p.in, p.all, p.at = time.Now(), in, l.waiting[in].PushBack(p), p.of.waiting[in].PushBack(p)
}

// work takes a connection out of its queue: the server works for it, so it keeps its place.
func (l *ConnLimit) work(p *place) {
	if p.at != nil {
		l.waiting[p.in].Remove(p.all)
		p.of.waiting[p.in].Remove(p.at)
		p.all, p.at = nil, nil
	}
}

// leave gives up a place.
func (l *ConnLimit) leave(p *place) {
	l.work(p)
	delete(l.conns, p.Conn)
	if p.of.n--; p.of.n == 0 {
		delete(l.clients, p.of.addr)
	}
}

// state is http.Server.ConnState.
func (l *ConnLimit) state(c net.Conn, s http.ConnState) {
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
	case p == nil: // it was replaced
	case s == http.StateIdle:
		l.wait(p, idle)
	case s == http.StateActive && l.handlerTells:
		l.wait(p, slow)
	case s == http.StateActive:
		l.work(p)
	default:
		l.leave(p)
	}
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// Busy reports that the work for a request begins or ends. ctx is derived from the request's.
func (l *ConnLimit) Busy(ctx context.Context, busy bool) {
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
