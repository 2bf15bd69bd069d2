package daemon

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnectionsAreShared: a client's new connection replaces its own one that has waited
// for it longest, and is closed while the server works for all of them. It never replaces
// another client's.
func TestConnectionsAreShared(t *testing.T) {
	began, leave := make(chan struct{}, 10), make(chan struct{})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{}
	l := LimitConns(inner, 4, srv, true) // of which one client has three
	srv.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.Busy(r.Context(), r.URL.Path != "/slow")
		began <- struct{}{}
		switch r.URL.Path {
		case "/long":
			<-leave
		case "/slow":
			<-r.Context().Done()
		}
		l.Busy(r.Context(), false)
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	from := func(host, path string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		c, err := d.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		return c
	}
	isCut := func(c net.Conn) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	answered := func(c net.Conn) {
		t.Helper()
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 200, answer.StatusCode)
	}
	const one, other = "127.0.0.1", "127.0.0.2"
	first := []net.Conn{from(one, "/slow"), from(one, "/long"), from(one, "/long")}
	for range first {
		<-began
	}
	short := from(other, "/short")
	answered(short)
	<-began
	idles := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.waiting[idle].Len() == 1
		}, time.Minute, time.Millisecond)
	}
	isCut(from(one, "/short")) // none of its connections has waited for long
	time.Sleep(SlowTime)
	// The first client's slow one makes room, not the other client's idle one; then all of
	// the first one's requests are worked for.
	fourth := from(one, "/long")
	<-began
	isCut(first[0])
	isCut(from(one, "/short"))
	fmt.Fprint(short, "GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answered(short)
	<-began
	// All four are taken. A newcomer takes the place of whoever has waited for longest.
	idles()
	third := from("127.0.0.3", "/short")
	answered(third)
	<-began
	isCut(short)
	idles()
	last := from("127.0.0.4", "/long")
	<-began
	isCut(third)
	isCut(from("127.0.0.5", "/short")) // all are worked for
	close(leave)
	for _, c := range []net.Conn{first[1], first[2], fourth, last} {
		answered(c)
	}
	require.NoError(t, srv.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns)+len(l.clients)+l.waiting[idle].Len()+l.waiting[slow].Len() == 0
	}, time.Minute, time.Millisecond)
}
