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

// ConnLimit is a listener that limits the number of open connections, of a server as a whole and of each client. A
// client may have up to three times as many connections as are free (see webguard.MayTake).
//
// If a client at its limit opens a connection, the new connection replaces an old one of the same client:
//   - the one that has been idle longest;
//   - if none is idle, the one that has waited longest, at least SlowTime, for the client to send a body or to read an
//     answer.
//
// If there is no such connection, the new connection is closed. A client without connections may replace a connection
// of any client.
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
// s on the returned listener. A new connection never replaces one for which the server works. The parameter
// handlerTells says how the listener learns when the server works:
//   - If it is true, the server's handler tells the listener, by Busy.
//   - If it is false, the server works from the first byte of a request to the last byte of the answer.
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

// queues are two queues of connections that wait for their client: idle connections, and slow connections, which are in
// the middle of a request or an answer. The connection that has waited longest is first in its queue.
type queues [2]list.List // the elements are *place

const (
	idle = iota // waits for a request
	slow        // waits for a body, or for the client to read the answer
)

// SlowTime is the least time for which a connection must have waited for its client before a new connection can replace
// it. It waits for the client to send a body or to read an answer.
const SlowTime = 500 * time.Millisecond

// first returns the old connection that a new connection replaces: the one that has been idle longest. If none is idle,
// it is the slow connection that has waited longest. The result is nil if no connection may be replaced.
func (q *queues) first() *place {
	if front := q[idle].Front(); front != nil {
		return front.Value.(*place)
	}
	if front := q[slow].Front(); front != nil && time.Since(front.Value.(*place).since) >= SlowTime {
		return front.Value.(*place)
	}
	return nil
}

// peer is one client of a server, given by its address, with the connections of the client that a ConnLimit counts.
type peer struct {
	addr    netip.Prefix
	n       int // number of connections
	waiting queues
}

// place is one open connection that a ConnLimit counts. While the connection waits for its client to send or to read,
// the place also has its position in a queue of such connections.
type place struct {
	net.Conn
	of      *peer
	in      int           // index of the queue
	all, at *list.Element // in the queues of the limit and of the peer; nil: the server works for it
	since   time.Time     // the connection waits since then
}

// Accept returns the next new connection that the limit admits. It closes new connections beyond the limit, and old
// connections that a new one replaces. It implements net.Listener.
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

// admit reports whether the limit admits the new connection c. The result replaced is an old connection that the caller
// closes to make room for c, or nil if room is free.
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

// wait puts the connection p into one of the two queues of connections that wait for their client. The parameter `in`
// is the index of the queue: idle or slow.
func (l *ConnLimit) wait(p *place, in int) {
	l.work(p)
	p.since, p.in, p.all, p.at = time.Now(), in, l.waiting[in].PushBack(p), p.of.waiting[in].PushBack(p)
}

// work takes the connection p out of its queue while the server works for the connection, so that no new connection
// replaces p.
func (l *ConnLimit) work(p *place) {
	if p.at != nil {
		l.waiting[p.in].Remove(p.all)
		p.of.waiting[p.in].Remove(p.at)
		p.all, p.at = nil, nil
	}
}

// leave removes the connection p from the count and the queues of the limit, so that a new connection can be admitted.
func (l *ConnLimit) leave(p *place) {
	l.work(p)
	delete(l.conns, p.Conn)
	if p.of.n--; p.of.n == 0 {
		delete(l.clients, p.of.addr)
	}
}

// state is the hook http.Server.ConnState of the server. It moves the connection c between the queues when the state of
// c changes, and counts new and closed connections.
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

// connKey is the type of the key under which the context of a request holds the connection of the request.
type connKey struct{}

// Busy tells the ConnLimit when the server works for a request, so that no new connection replaces the request's
// connection meanwhile. The server's handler calls it with busy set to true when the work begins, and with false when
// the work ends. The context ctx is that of the request, or derived from it.
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
