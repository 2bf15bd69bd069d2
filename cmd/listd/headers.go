package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// byteCost and the other constants are for the memory that the headers of all requests may take together. A parsed
// header with many short lines takes many times its bytes. Of each header, the memory beyond that of a common header
// counts, from the arrival until the answer is sent. If the limit is reached, the server closes the connection.
const (
	// byteCost and lineCost are the estimated bytes of memory for each byte and for each line of a parsed header.
	byteCost, lineCost = 2, 160
	// freeCost is the memory of a header, in bytes, that does not count against the budget. The headers of S3 clients
	// take less.
	freeCost = 12 << 10
	// sealedCost is the largest memory, in bytes, for each byte of an encrypted header. sealedFree is the memory of an
	// encrypted connection that does not count against the budget: enough for a handshake and a common header.
	sealedCost, sealedFree = 16, 96 << 10
)

// headerLimit is a listener that limits the memory of the request headers of all its connections together. With TLS it
// counts encrypted bytes: net/http must see a tls.Conn, so the TLS listener is outside, and uses the headerLimit.
type headerLimit struct {
	net.Listener
	sealed bool  // the connections use TLS
	most   int64 // the budget in bytes
	used   atomic.Int64
}

// Accept returns the next new connection, wrapped so that the memory of its request headers is counted.
func (l *headerLimit) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headerConn{Conn: c, limit: l}, nil
}

// headerConn is a connection that counts the bytes of request headers, for a limit of their memory. All bytes that
// arrive while the server serves no request of the connection count as header bytes.
type headerConn struct {
	net.Conn
	limit   *headerLimit
	serving atomic.Bool  // the header is complete; a body may follow
	cost    atomic.Int64 // bytes of memory of the present header
}

var errHeaders = errors.New("the headers of all requests together take too much memory")

// Read reads from the connection. It returns errHeaders if a request header would exceed the memory for all headers.
func (c *headerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.serving.Load() && !c.count(p[:n]) {
		return 0, errHeaders
	}
	return n, err
}

// count adds the memory for part, the next bytes of a request header, to the memory used by all headers. If the sum
// would exceed the budget, count adds nothing and returns false.
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

// done gives the memory of the request header back to the budget that all headers share. It is called when the request
// has ended.
func (c *headerConn) done() {
	free := int64(freeCost)
	if c.limit.sealed {
		free = sealedFree
	}
	if counted := max(c.cost.Swap(0)-free, 0); counted > 0 {
		c.limit.used.Add(-counted)
	}
}

// countHeader marks that the connection c begins or stops serving a request, and frees the memory of the request's
// header at the end of the request. It is called as http.Server.ConnState.
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
