package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// The header of a request, once parsed, takes many times its bytes where its lines are
// short, and it stays until the answer is sent. So all headers together have a budget:
// what a header takes beyond a common one is counted while it comes, and the connection
// is closed where there is no more.
const (
	// byteCost and lineCost are what a byte and a line take, parsed.
	byteCost, lineCost = 2, 160
	// freeCost is not counted: requests of S3's clients take less.
	freeCost = 12 << 10
	// sealedCost is what a byte takes of which one can't tell what it is, and sealedFree
	// is what is not counted of those: a handshake, and a common header.
	sealedCost, sealedFree = 16, 96 << 10
)

// headerLimit is a listener whose connections count the headers that they bring. It is
// below TLS: net/http has to see that a connection has it.
type headerLimit struct {
	net.Listener
	sealed bool // the connections will speak TLS
	most   int64
	used   atomic.Int64
}

// Accept implements net.Listener.
func (l *headerLimit) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headerConn{Conn: c, limit: l}, nil
}

// headerConn is a connection that counts what it brings while no request is under way.
type headerConn struct {
	net.Conn
	limit   *headerLimit
	serving atomic.Bool  // a header has come, so this is a body
	cost    atomic.Int64 // of the present header
}

var errHeaders = errors.New("the headers of all requests together take too much memory")

// Read implements net.Conn.
func (c *headerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.serving.Load() && !c.count(p[:n]) {
		return 0, errHeaders
	}
	return n, err
}

// count adds a part of a header, if there is room for it.
func (c *headerConn) count(part []byte) bool {
	cost, free := int64(len(part)*byteCost+bytes.Count(part, []byte{'\n'})*lineCost), int64(freeCost)
	if c.limit.sealed {
		cost, free = int64(len(part)*sealedCost), sealedFree
	}
	after := c.cost.Add(cost)
	more := max(after-free, 0) - max(after-cost-free, 0)
	if more == 0 || c.limit.used.Add(more) <= c.limit.most {
		return true
	}
	c.limit.used.Add(-more)
	c.cost.Add(-cost)
	return false
}

// done gives back what a header took.
func (c *headerConn) done() {
	free := int64(freeCost)
	if c.limit.sealed {
		free = sealedFree
	}
	if counted := max(c.cost.Swap(0)-free, 0); counted > 0 {
		c.limit.used.Add(-counted)
	}
}

// countHeader is told of a connection's state; see http.Server.ConnState.
func countHeader(c net.Conn, s http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	h, ok := c.(*headerConn)
	if !ok {
		return
	}
	switch s {
	case http.StateActive:
		h.serving.Store(true)
	case http.StateIdle:
		h.done()
		h.serving.Store(false)
	case http.StateClosed, http.StateHijacked:
		h.serving.Store(true)
		h.done()
	}
}
