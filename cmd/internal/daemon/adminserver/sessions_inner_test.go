package adminserver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSessionsEnd after twelve hours, whatever was done in them; over TLS a cookie belongs to this host alone.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions("sixteen-letters!", &net.TCPAddr{Port: 9001}, true)
		w := httptest.NewRecorder()
		require.Equal(t, time.Now().Add(sessionFor), s.begin(w))
		c := w.Result().Cookies()[0]
		require.Equal(t, "__Host-evenkeel-9001", c.Name)
		require.True(t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		require.False(t, s.holds(r))
		r.AddCookie(c)
		require.True(t, s.holds(r))
		time.Sleep(sessionFor - time.Second)
		require.True(t, s.holds(r))
		time.Sleep(2 * time.Second)
		require.False(t, s.holds(r))
		s.begin(httptest.NewRecorder())
		require.Len(t, s.ends, 1, "what is over is forgotten")
	})
}
