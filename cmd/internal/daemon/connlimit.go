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

// ConnLimit is a listener that limits the connections of a server as a whole, and of each client. A client may open
// another connection while its connections are fewer than three times the free ones (see webguard.MayTake).
//
// If a client at its limit opens a connection, it replaces one of the client's other connections: the one that has been
// idle longest. If none is idle, it replaces the one that has waited longest, for SlowTime at least, for the client to
// send a body or to read an answer. If there is no such connection either, the new one is closed. A client without
// connections may replace one of any client.
type ConnLimit struct {
	net.Listener
	most         int
	handlerTells bool

	mu      sync.Mutex
	conns   map[net.Conn]*place
	clients map[netip.Prefix]*peer
	waiting queues
}

// LimitConns returns a listener for the server s that accepts at most `most` connections at once. The caller then runs
// s on it. A connection is not closed while the server works for it. If handlerTells is true, the server's handler says
// by Busy when that is. Otherwise it is from the first byte of a request to the last byte of the answer.
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

// queues are the connections that wait for their client, in two queues: the idle ones, and the slow ones, in the middle
// of a request or an answer. The connection that has waited longest is first in its queue.
type queues [2]list.List // the elements are *place

const (
	idle = iota // waits for a request
	slow        // waits for a body, or for the client to read the answer
)

// SlowTime is how long a connection may at least wait for its client to send a body or to read an answer, before a new
// connection can replace it.
const SlowTime = 500 * time.Millisecond

// first returns the connection that a new one replaces: the longest idle one, or else the longest waiting slow one. It
// returns nil if none may be replaced.
func (q *queues) first() *place {
	if front := q[idle].Front(); front != nil {
		return front.Value.(*place)
	}
	if front := q[slow].Front(); front != nil && time.Since(front.Value.(*place).since) >= SlowTime {
		return front.Value.(*place)
	}
	return nil
}

// peer is one client of a server, with its connections.
type peer struct {
	addr    netip.Prefix
	n       int // number of connections
	waiting queues
}

// place is one connection that counts in a ConnLimit, which limits connections, and the queue in which it waits, if
// any.
type place struct {
	net.Conn
	of      *peer
	in      int           // index of the queue
	all, at *list.Element // in the queues of the limit and of the peer; nil: the server works for it
	since   time.Time     // the connection waits since then
}

// Accept returns the next new connection that the limit admits. New connections beyond the limit are closed.
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

// admit reports whether the limit admits the new connection c. replaced is an old connection, which the caller closes
// to make room, or nil.
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

// closeConn closes a connection at once. The closing message of TLS is left out, as sending it could take long.
func closeConn(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// wait puts a connection, which waits for its client from now on, into one of the two queues: in is idle or slow.
func (l *ConnLimit) wait(p *place, in int) {
	l.work(p)
	p.since, p.in, p.all, p.at = time.Now(), in, l.waiting[in].PushBack(p), p.of.waiting[in].PushBack(p)
}

// work takes a connection out of its queue while the server works for it, so that no new connection replaces it.
func (l *ConnLimit) work(p *place) {
	if p.at != nil {
		l.waiting[p.in].Remove(p.all)
		p.of.waiting[p.in].Remove(p.at)
		p.all, p.at = nil, nil
	}
}

// leave removes a connection from the limit's count and queues, so that another one may take its place.
func (l *ConnLimit) leave(p *place) {
	l.work(p)
	delete(l.conns, p.Conn)
	if p.of.n--; p.of.n == 0 {
		delete(l.clients, p.of.addr)
	}
}

// state handles a change of a connection's state. The server calls it as its http.Server.ConnState.
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
	case p == nil: // the connection was replaced
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

// connKey is the key of the context value that holds a request's connection.
type connKey struct{}

// Busy tells the limit of connections that the server begins to work for a request (busy is true), or has ended that
// work (busy is false). ctx is the context of the request, or derived from it.
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
