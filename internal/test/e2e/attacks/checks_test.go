package attacks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
)

// refused runs a server that must not start, and returns what it says.
func refused(t *testing.T, p *harness.Programs, args ...string) string {
	t.Helper()
	p.Patience = 5 * time.Second
	first := []string{"serve", "--data", filepath.Join(p.Dir, "none"), "--listen", "127.0.0.1:0", "--admin",
		"127.0.0.1:0"}
	code, out, errs := p.Try("listd", append(first, args...)...)
	require.Equal(t, 2, code, "%s%s", out, errs)
	return errs
}

// TestKeysFilesThatWereCutOff: no beginning of a file of keys is taken, and no key that
// does not say what it is good for.
func TestKeysFilesThatWereCutOff(t *testing.T) {
	p := harness.Build(t)
	whole := keysFile()
	file := filepath.Join(p.Dir, "keys.yaml")
	try := func(text, says string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Contains(t, refused(t, p, "--keys-file", file), says)
	}
	const key = "keys:\n- id: A\n  secret: a secret of many letters\n  access: read-write\n"
	try(key+"complete: true\n", "everything: true")
	try(key+"  only:\ncomplete: true\n", "only:")
	try(key+"  only: [b]\n  everything: true\ncomplete: true\n", "everything:")
	try(key+"  only: [b]\n", "complete: true")
	for _, end := range []string{"complete: true\n", "complete", "]}", "-15", "attacked, "} {
		at := strings.LastIndex(whole, end)
		require.Positive(t, at, end)
		try(whole[:at], "")
	}
}

// ask does a request with any Host, and any path.
func ask(t *testing.T, base, method, path string, headers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, b.String()
}

// TestPagesOfOtherSites: what a browser sends for a page of another site, after it was
// told a loopback address for that site's name, reaches nothing.
func TestPagesOfOtherSites(t *testing.T) {
	g := newGround(t, &attack{open: true})
	status, _ := ask(t, g.S3, "PUT", "/abc")
	require.Equal(t, 200, status)
	for _, c := range []struct {
		base, method, path string
		headers            []string
		want               int
	}{
		{g.S3, "GET", "/abc", nil, 200},
		{g.S3, "GET", "/abc", []string{"Host", "localhost:9000"}, 200},
		{g.S3, "GET", "/abc", []string{"Host", "evil.test"}, 403},
		{g.S3, "PUT", "/abc/k", []string{"Host", "evil.test:9000"}, 403},
		{g.S3, "PUT", "/abc/k", []string{"Origin", "http://evil.test"}, 403},
		{g.S3, "DELETE", "/abc", []string{"Origin", "null"}, 403},
		{g.Admin, "GET", "/metrics", nil, 200},
		{g.Admin, "GET", "/metrics", []string{"Host", "evil.test"}, 403},
		{g.Admin, "GET", "/debug/pprof/", []string{"Host", "evil.test"}, 403},
		{g.Admin, "GET", "/v1/status", []string{"Host", "evil.test"}, 403},
		{g.Admin, "POST", "/v1/pause", []string{"Origin", "http://evil.test"}, 403},
		{g.Admin, "POST", "/v1/pause", []string{"Host", "evil.test"}, 403},
	} {
		got, body := ask(t, c.base, c.method, c.path, c.headers...)
		require.Equal(t, c.want, got, "%s %s %v: %s", c.method, c.path, c.headers, body)
	}
}

// TestTheAdminToken: a short one is refused; it is not sent to whom an answer names.
func TestTheAdminToken(t *testing.T) {
	p := harness.Build(t)
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			stolen.Add(1)
		}
	}))
	defer thief.Close()
	_, port, err := net.SplitHostPort(thief.Listener.Addr().String())
	require.NoError(t, err)
	for _, where := range []string{thief.URL, "http://127.0.0.2:" + port, "http://localhost:" + port} {
		liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMisdirectedRequest)
			leader := &engine.Holder{Name: "thief", Admin: where}
			_ = json.NewEncoder(w).Encode(adminapi.Problem{Error: "another leads", Leader: leader})
		}))
		code, out, errs := p.Try("rebalancer", "pause", "--admin", liar.URL, "--admin-token", "a-token-of-many-letters")
		liar.Close()
		require.NotZero(t, code, "%s%s", out, errs)
		require.Zero(t, stolen.Load(), "the token was sent to %s: %s%s", where, out, errs)
	}
	require.Contains(t, refused(t, p, "--admin-token", "x"), "16")
}

// away is an address of this machine that is not a loopback one.
func away(t *testing.T) string {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has loopback addresses only")
	return ""
}

// TestReplays: over plain HTTP a signature that does not cover the body is refused, but on
// loopback, where nobody listens in.
func TestReplays(t *testing.T) {
	for _, host := range []string{"127.0.0.1", away(t)} {
		g := newGround(t, &attack{}, "--listen", net.JoinHostPort(host, "0"))
		g.From = nil // an address that reaches the server
		require.NoError(t, g.Must(t.Context(), g.client, honest, "PUT", "/honest", nil))
		signed := g.Head(honest, "PUT", "/honest/k", sigv4.UnsignedPayload, 4)
		covered := g.Text(honest, "PUT", "/honest/k", []byte("mine"))
		mine, evil := append(bytes.Clone(signed), "mine"...), append(bytes.Clone(signed), "evil"...)
		for _, text := range [][]byte{covered, mine, evil} {
			c, err := g.Dial(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Send(text))
			status, err := c.Answer()
			require.NoError(t, err)
			if host == "127.0.0.1" || bytes.Equal(text, covered) {
				require.Equal(t, 200, status)
			} else {
				require.Equal(t, 4, status/100, "%s", text)
			}
		}
		got, err := g.Ask(t.Context(), g.client, honest, "GET", "/honest/k", nil)
		require.NoError(t, err)
		require.Equal(t, host == "127.0.0.1", string(got.Body) == "evil")
	}
}

// TestSecretsAndPermissions: no password is shown, nobody else reads the data, and the log
// warns of a file of keys that others can read.
func TestSecretsAndPermissions(t *testing.T) {
	p := harness.Build(t)
	out := p.Run("listd", "config", "--counter", "redis://someone:hidden-password@127.0.0.1:6379/0")
	require.NotContains(t, out, "hidden-password")
	require.Contains(t, out, "127.0.0.1:6379")

	data, keys := filepath.Join(p.Dir, "data"), filepath.Join(p.Dir, "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte(keysFile()), 0o644))
	require.NoError(t, os.Chmod(keys, 0o644)) // whatever the umask
	s := p.Serve("--data", data, "--keys-file", keys)
	require.NoError(t, filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	}))
	harness.Eventually(t, "the log warns", func() bool {
		for line := range strings.Lines(s.Log.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "keys.yaml") {
				return true
			}
		}
		return false
	})
}

// TestAnswersHaveNoControlBytes: what comes in by a presigned URL, too.
func TestAnswersHaveNoControlBytes(t *testing.T) {
	g := newGround(t, &attack{})
	require.NoError(t, g.Must(t.Context(), g.client, honest, "PUT", "/attacked", nil))
	require.NoError(t, g.Must(t.Context(), g.client, honest, "PUT", "/attacked/k", []byte("x")))
	put := func(query url.Values, method string) []byte {
		return g.Head(siege.Key{}, method, g.presigned(method, "/attacked/k", query), "", 0)
	}
	for _, bad := range []string{"\x01", "a\r\nEvil: 1", "\x7f", "\x00"} {
		for _, text := range [][]byte{
			put(url.Values{"x-amz-meta-a": {bad}}, "PUT"), g.Text(g.key, "GET", "/attacked/k", nil),
			put(url.Values{"response-content-disposition": {bad}}, "GET"),
			put(url.Values{"response-content-type": {bad}}, "GET"),
		} {
			c, err := g.Dial(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Send(text))
			require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
			head := bufio.NewReader(c)
			for line := ""; line != "\r\n"; {
				line, err = head.ReadString('\n')
				require.NoError(t, err)
				require.NotContains(t, strings.ToLower(line), "evil: 1\r\n", "%s", text)
				control := func(r rune) bool { return r < ' ' || r == 0x7f }
				require.False(t, strings.ContainsFunc(strings.TrimSuffix(line, "\r\n"), control), "%q to %q", line,
					text)
			}
			_ = c.Close()
		}
	}
}
