package adminserver_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/test/tlstest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const token = "sixteen-letters!"

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) await(t *testing.T, text string) {
	t.Helper()
	said := func() bool { return strings.Contains(l.String(), text) }
	require.Eventually(t, said, 30*time.Second, time.Millisecond, text)
}

// serve serves an admin address; all commands are answered by {}.
func serve(t *testing.T, f adminserver.Flags) (url string, log *logged) {
	t.Helper()
	access, err := f.Open(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := memstore.New()
	b, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	log = &logged{}
	server := listen(t, s, b, access, log)
	commands := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	go func() { _ = server.Serve(commands) }()
	return server.URL(), log
}

// listen opens an admin address.
func listen(
	t *testing.T, s store.Store, b *listing.Client, access *adminserver.Access, log io.Writer,
) *adminserver.Server {
	t.Helper()
	server, err := adminserver.Listen(adminserver.Options{
		Registry: prometheus.NewRegistry(), Store: s, Buckets: b, Access: access,
		Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

// TestConnectionsAreLimited: clients that open many connections and send nothing keep
// neither files nor the address from others.
func TestConnectionsAreLimited(t *testing.T) {
	url, _ := serve(t, adminserver.Flags{})
	closed := make(chan struct{}, 10*adminserver.MostConnections)
	late := time.After(9 * time.Second) // then the server closes them since they are idle
	for range cap(closed) {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			_, _ = c.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	for range cap(closed) - adminserver.MostConnections {
		select {
		case <-closed:
		case <-late:
			require.FailNow(t, "the server keeps more connections than it may")
		}
	}
	status, _ := ask(t, "GET", url+"/healthz")
	require.Equal(t, 200, status)
}

// ask sends a request whose headers may hold a Host.
func ask(t *testing.T, method, url string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// TestPagesCannotCommand: what a page in somebody's browser can send does nothing.
func TestPagesCannotCommand(t *testing.T) {
	open, _ := serve(t, adminserver.Flags{})
	named, _ := serve(t, adminserver.Flags{AllowHost: []string{"admin.test"}})
	closed, _ := serve(t, adminserver.Flags{AdminToken: token})
	bearer := []string{"Authorization", "Bearer " + token}
	for _, c := range []struct {
		method, url string
		headers     []string
		want        int
	}{
		{"GET", open + "/metrics", nil, 200},
		{"GET", open + "/metrics", []string{"Host", "localhost:9001"}, 200},
		{"GET", open + "/metrics", []string{"Host", "evil.test"}, 403},
		{"GET", open + "/v1/status", []string{"Host", "evil.test"}, 403},
		{"POST", open + "/v1/moves", []string{"Host", "evil.test", "Origin", "http://evil.test"}, 403},
		{"POST", open + "/v1/moves", []string{"Host", "evil.test", "Sec-Fetch-Site", "same-origin"}, 403},
		{"GET", open + "/debug/pprof/heap", []string{"Host", "evil.test"}, 403},
		{"GET", open + "/nothing", []string{"Host", "evil.test"}, 403},
		{"GET", open + "/healthz", []string{"Host", "10.1.2.3"}, 200},
		{"GET", open + "/readyz", []string{"Host", "10.1.2.3"}, 200},
		{"POST", open + "/v1/moves", []string{"Origin", "http://evil.test"}, 403},
		{"POST", open + "/v1/moves", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", open + "/v1/map", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", open + "/debug/pprof/heap", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", open + "/debug/pprof/profile?seconds=1", []string{"Origin", "http://evil.test"}, 403},
		{"GET", open + "/debug/pprof/heap", []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", open + "/metrics", []string{"Sec-Fetch-Site", "cross-site"}, 200},
		{"POST", open + "/v1/moves", nil, 200},
		{"POST", named + "/v1/moves", []string{"Host", "admin.test:9001"}, 200},
		{"POST", named + "/v1/moves", []string{"Host", "evil.test"}, 403},
		{"POST", closed + "/v1/moves", append([]string{"Host", "admin.test"}, bearer...), 200},
		{"POST", closed + "/v1/moves", append([]string{"Origin", "http://evil.test"}, bearer...), 403},
	} {
		status, body := ask(t, c.method, c.url, c.headers...)
		require.Equal(t, c.want, status, "%s %s %q: %s", c.method, c.url, c.headers, body)
	}
	_, body := ask(t, "GET", open+"/metrics", "Host", "evil.test")
	require.Contains(t, body, "--allow-host")
	_, body = ask(t, "GET", open+"/debug/pprof/cmdline")
	require.NotContains(t, body, "test.timeout", "flags may hold secrets")
}

// TestFailedTriesAreSlow and logged, and don't keep out who has the token.
func TestFailedTriesAreSlow(t *testing.T) {
	t.Parallel() // it waits for the answers to failed tries
	url, log := serve(t, adminserver.Flags{AdminToken: token})
	const tries = 20 // one client has so many connections
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range tries {
		all.Go(func() {
			status, body := ask(t, "GET", url+"/metrics", "Authorization", "Bearer wrong-but-secret")
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
			if status == 401 && time.Since(began) < time.Second {
				t.Error("an answer came at once")
			}
			if strings.Contains(body, token) {
				t.Error("the token is told")
			}
		})
	}
	log.await(t, "client=127.0.0.1:")
	status, _ := ask(t, "GET", url+"/metrics", "Authorization", "Bearer "+token)
	require.Equal(t, 200, status)
	all.Wait()
	require.Equal(t, tries, answers[401]+answers[429], answers)
	require.LessOrEqual(t, float64(answers[401]), 8*(1+time.Since(began).Seconds()), "so many are held back at once")
	require.Positive(t, answers[429])
	_, _ = ask(t, "GET", url+"/metrics") // its line counts those that had none
	require.LessOrEqual(t, strings.Count(log.String(), "\n"), answers[401]+1)
	require.NotContains(t, log.String(), "secret")
	require.NotContains(t, log.String(), token)
}

func TestAdminOverTLS(t *testing.T) {
	t.Parallel() // it waits for the answers to failed tries
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	tlstest.Write(t, file("cert"), file("key"), "the first")
	tlstest.Write(t, file("client"), file("client-key"), "operator")
	tlstest.Write(t, file("other"), file("other-key"), "stranger")
	url, log := serve(t, adminserver.Flags{
		AdminToken: token, AdminHTTPSCertFile: file("cert"), AdminHTTPSKeyFile: file("key"),
		AdminClientCAFile: file("client"),
	})
	require.True(t, strings.HasPrefix(url, "https://"), url)
	status := func(f adminapi.Flags) error {
		f.Admin = []string{url}
		c, err := f.Client()
		require.NoError(t, err)
		_, err = c.Status(t.Context())
		return err
	}
	with := func(token, ca, own string) (f adminapi.Flags) {
		if f.AdminToken = token; ca != "" {
			f.AdminCAFile = file(ca)
		}
		if own != "" {
			f.AdminCertFile, f.AdminKeyFile = file(own), file(own+"-key")
		}
		return f
	}
	require.NoError(t, status(with(token, "cert", "client")))
	for says, f := range map[string]adminapi.Flags{
		"signed by unknown authority": with(token, "", "client"),
		"--admin-cert-file":           with(token, "cert", ""),
		"asks for a client cert":      with(token, "cert", "other"),
		"token is missing or wrong":   with("", "cert", "client"),
	} {
		require.ErrorContains(t, status(f), says)
	}
	probe := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := probe.Get(url + "/healthz")
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "probes have no certificates")
	require.NoError(t, resp.Body.Close())
	probe.CloseIdleConnections()

	// Authorities are read again like the certificate.
	tlstest.Write(t, file("client"), file("client-key"), "another operator")
	log.await(t, "read again")
	require.NoError(t, status(with(token, "cert", "client")))
}

func TestFlagsOfAdminAddresses(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	tlstest.Write(t, cert, key, "admin")
	for says, f := range map[string]adminserver.Flags{
		"openssl rand":        {AdminToken: "fifteen-letters"},
		"printable":           {AdminToken: "sixteen letters!"},
		"need each other":     {AdminHTTPSCertFile: cert},
		"--admin-https":       {AdminHTTPSCertFile: key, AdminHTTPSKeyFile: cert},
		"needs --admin-https": {AdminClientCAFile: cert},
		"holds no cert":       {AdminHTTPSCertFile: cert, AdminHTTPSKeyFile: key, AdminClientCAFile: key},
		"--allow-host":        {AllowHost: []string{"http://x"}},
	} {
		_, err := f.Open(slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "letters")
	}
	log := &logged{}
	resolve := func(f adminserver.Flags) error {
		a, err := f.Open(slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, err = a.Resolve("--admin", "0.0.0.0:0", slog.New(slog.NewTextHandler(log, nil)))
		return err
	}
	require.ErrorContains(t, resolve(adminserver.Flags{}), "--admin-token")
	require.Empty(t, log.String())
	files := adminserver.Flags{AdminHTTPSCertFile: cert, AdminHTTPSKeyFile: key, AdminClientCAFile: cert}
	require.NoError(t, resolve(files))
	files.AdminToken = token
	require.NoError(t, resolve(files))
	require.Empty(t, log.String())
	require.NoError(t, resolve(adminserver.Flags{AdminToken: token}))
	require.Contains(t, log.String(), "in the clear")
}
