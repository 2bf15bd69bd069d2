package adminserver_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// browser is one with cookies, on a page of an origin; empty: no page has sent its requests.
type browser struct {
	*testing.T
	http.Client
	url, origin string
}

func newBrowser(t *testing.T, url string) *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &browser{T: t, Client: http.Client{Jar: jar}, url: url, origin: url}
}

func (b *browser) send(method, path, body string) (resp *http.Response, text string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b, err)
	if b.origin != "" {
		req.Header.Set("Origin", b.origin)
		req.Header.Set("Sec-Fetch-Site", map[bool]string{true: "same-origin", false: "cross-site"}[b.origin == b.url])
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err = b.Do(req)
	require.NoError(b, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	require.NoError(b, err)
	return resp, string(all)
}

// session is an answer about a session.
type session struct {
	Required bool      `json:"required"`
	SignedIn bool      `json:"signed_in"`
	Expires  time.Time `json:"expires"`
}

func (b *browser) session(method, body string) (s session, resp *http.Response) {
	b.Helper()
	resp, text := b.send(method, "/v1/session", body)
	require.Equal(b, http.StatusOK, resp.StatusCode, text)
	require.NoError(b, json.Unmarshal([]byte(text), &s))
	return s, resp
}

const right = `{"token":"` + token + `"}`

// TestABrowserSignsIn with the token, once, and signs out.
func TestABrowserSignsIn(t *testing.T) {
	t.Parallel() // it waits for the answers to failed tries
	url, _ := serve(t, adminserver.Flags{AdminToken: token})
	b := newBrowser(t, url)
	s, _ := b.session("GET", "")
	require.Equal(t, session{Required: true}, s)
	resp, _ := b.send("GET", "/v1/status", "")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)

	s, resp = b.session("POST", right)
	require.True(t, s.SignedIn)
	require.Greater(t, s.Expires, time.Time{})
	c := resp.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.False(t, c.Secure, "it is not sealed")
	require.NotContains(t, c.Value, token)
	require.Len(t, c.Value, 64)

	for _, path := range []string{"/v1/status", "/metrics", "/debug/pprof/cmdline"} {
		resp, _ := b.send("GET", path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
	}
	s, _ = b.session("GET", "")
	require.True(t, s.SignedIn)
	// A page of another origin commands nothing, whatever the cookie.
	b.origin = "http://evil.example"
	for _, method := range []string{"GET", "POST"} {
		resp, _ := b.send(method, "/v1/status", "")
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
	}
	resp, _ = b.send("DELETE", "/v1/session", "")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	b.origin = url

	s, _ = b.session("DELETE", "")
	require.False(t, s.SignedIn)
	s, _ = b.session("GET", "")
	require.False(t, s.SignedIn)
	// Also for whoever has kept the cookie.
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/status", nil)
	require.NoError(t, err)
	req.AddCookie(c)
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

// TestBadSignIns are refused, and begin no session.
func TestBadSignIns(t *testing.T) {
	t.Parallel() // it waits for the answers to failed tries
	url, log := serve(t, adminserver.Flags{AdminToken: token})
	b := newBrowser(t, url)
	for body, code := range map[string]int{
		`{"token":"sixteen-letterz!"}`: 401, `{"token":""}`: 401, `{}`: 401, `{`: 400, `"` + token + `"`: 400,
		`{"token":"` + strings.Repeat("x", 5000) + `"}`: 400,
	} {
		resp, text := b.send("POST", "/v1/session", body)
		require.Equal(t, code, resp.StatusCode, body)
		require.Empty(t, resp.Cookies())
		var p struct{ Error string }
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.NotEmpty(t, p.Error)
	}
	require.NotContains(t, log.String(), "letterz", "a token that is nearly right is no less a secret")
	// A form of a web page sends no JSON.
	resp, err := b.Post(url+"/v1/session", "application/x-www-form-urlencoded", strings.NewReader(right))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	b.origin = "http://evil.example"
	resp, _ = b.send("POST", "/v1/session", right)
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Empty(t, b.Jar.Cookies(resp.Request.URL))
}

// TestSessionsAreFew: the oldest one makes room.
func TestSessionsAreFew(t *testing.T) {
	url, _ := serve(t, adminserver.Flags{AdminToken: token})
	var all []*browser
	for range 65 {
		b := newBrowser(t, url)
		s, _ := b.session("POST", right)
		require.True(t, s.SignedIn)
		all = append(all, b)
	}
	s, _ := all[0].session("GET", "")
	require.False(t, s.SignedIn)
	for _, b := range all[1:] {
		s, _ := b.session("GET", "")
		require.True(t, s.SignedIn)
	}
}

// TestWithoutAToken everybody who may reach the address is signed in; the host's name is checked as for all of it.
func TestWithoutAToken(t *testing.T) {
	url, _ := serve(t, adminserver.Flags{})
	b := newBrowser(t, url)
	s, _ := b.session("GET", "")
	require.Equal(t, session{SignedIn: true}, s)
	s, resp := b.session("POST", right)
	require.True(t, s.SignedIn)
	require.Empty(t, resp.Cookies())
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/session", nil)
	require.NoError(t, err)
	req.Host = "rebound.example"
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}

// TestTheConsoleIsServedToAll, and nothing else is.
func TestTheConsoleIsServedToAll(t *testing.T) {
	t.Parallel() // it waits for the answers to failed tries
	f := adminserver.Flags{AdminToken: token}
	access, err := f.Open(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	s := memstore.New()
	buckets, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	server, err := adminserver.Listen(adminserver.Options{
		Registry: prometheus.NewRegistry(), Store: s, Buckets: buckets, Access: access, Console: page,
		Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	go func() { _ = server.Serve(http.NotFoundHandler()) }()
	b := newBrowser(t, server.URL())
	for path, want := range map[string]string{"/": "page /console/", "/console/app.js": "page /console/app.js"} {
		resp, text := b.send("GET", path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, want, text)
	}
	for _, path := range []string{"/console/../metrics", "/metrics", "/v1/status", "/console"} {
		resp, text := b.send("GET", path, "")
		require.True(t, resp.StatusCode == http.StatusUnauthorized || strings.HasPrefix(text, "page /console/"), "%s: %s", path, text)
	}
	resp, _ := b.send("POST", "/console/", "{}")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}
