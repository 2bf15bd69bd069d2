package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// A parsed header with short lines takes many times its bytes, until the answer is sent. So
// all headers together have a budget: the memory of a header beyond that of a common one is
// counted while it arrives, and its connection is closed when the budget is used up.
const (
	// byteCost and lineCost are the memory of a parsed byte and line.
	byteCost, lineCost = 2, 160
	// freeCost is not counted: headers of S3's clients take less.
	freeCost = 12 << 10
	// sealedCost is the most memory of an encrypted byte, and sealedFree is not counted: that
	// of a handshake and a common header.
	sealedCost, sealedFree = 16, 96 << 10
)

// headerLimit is a listener whose connections count their headers. It is below TLS, since
// net/http must see tls.Conn.
type headerLimit struct {
	net.Listener
	sealed bool // the connections use TLS
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

// headerConn counts the bytes that arrive while no request is being served.
type headerConn struct {
	net.Conn
	limit   *headerLimit
	serving atomic.Bool  // the header is complete: a body follows
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

// count counts a part of a header, if the budget allows it.
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

// done returns the memory of a header to the budget.
func (c *headerConn) done() {
	free := int64(freeCost)
	if c.limit.sealed {
		free = sealedFree
	}
	if counted := max(c.cost.Swap(0)-free, 0); counted > 0 {
		c.limit.used.Add(-counted)
	}
}

// countHeader handles a change of a connection's state, see http.Server.ConnState.
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
