package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestServeKeepsWhatItAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	ok(t, "a\nb\nc\n", "load", "abc", "--create", "--server", p.s3)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	p = start(t, dir)
	require.Equal(t, "a\nb\nc\n", ok(t, "", "ls", "abc", "--server", p.s3))
	require.Equal(t, 0, p.end(os.Interrupt), p.errs)
}

func TestServeRefusesWhatItMust(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "letter.txt"), []byte("dear"), 0o600))
	file := filepath.Join(foreign, "letter.txt")
	taken := strings.TrimPrefix(p.s3, "http://")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--data " + dir, daemon.ExitUnusable, dir},
		{"--data " + foreign, daemon.ExitUnusable, foreign},
		{"--data " + file, daemon.ExitUnusable, file},
		{"--data /proc/nowhere", daemon.ExitUnusable, "/proc/nowhere"},
		{"--data " + t.TempDir() + " --listen " + taken, daemon.ExitFailed, "--listen"},
		{"--data " + t.TempDir() + " --admin " + taken, daemon.ExitFailed, "--admin"},
		{"--listen 0.0.0.0:0", daemon.ExitUsage, "--insecure"},
		{"--listen [::]:0", daemon.ExitUsage, "--insecure"},
		{"--admin 0.0.0.0:0", daemon.ExitUsage, "--admin-token"},
		{"--admin 0.0.0.0:0 --insecure", daemon.ExitUsage, "--admin-token"},
		{"--admin-token fifteen-letters", daemon.ExitUsage, "openssl rand"},
		{"--admin-https-cert-file " + file, daemon.ExitUsage, "--admin-https-key-file"},
		{"--allow-host http://x", daemon.ExitUsage, "--allow-host"},
		{"--admin-url http://a:9001,http://b:9001", daemon.ExitUsage, "--admin-url"},
		{"--log-rate -1", daemon.ExitUsage, "--log-rate"},
	} {
		o := listd(t, "", append(strings.Fields("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0"),
			strings.Fields(c.args)...)...)
		require.Equal(t, c.code, o.code, "%s: %s", c.args, o.err)
		require.Contains(t, o.err, c.says)
		require.NotContains(t, o.out, "S3 on")
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "dear", string(data))
	status, _ := get(t, p.s3+"/")
	require.Equal(t, 200, status, "the first process goes on")
}

func TestAdminAddress(t *testing.T) {
	p := start(t, t.TempDir(), "--insecure", "--listen", "0.0.0.0:0")
	ok(t, "a\n", "load", "abc", "--create", "--server", strings.Replace(p.s3, "[::]", "127.0.0.1", 1))
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok",
		"/metrics":      `evenkeel_s3_requests_total{operation="PutObject",status="200"} 1`,
		"/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "listd", "/v1/cluster": `"disk_free_bytes"`,
	} {
		status, body := get(t, p.admin+path)
		require.Equal(t, 200, status, path)
		require.Contains(t, body, want, path)
	}
	_, metrics := get(t, p.admin+"/metrics")
	require.Contains(t, metrics, "evenkeel_map_cache_buckets 2\n", "the bucket, and the list of buckets")
	require.Contains(t, metrics, `evenkeel_build_info{goversion="`+runtime.Version()+`",`)
	require.Contains(t, ok(t, "", "--version"), runtime.Version())
	first, _, _ := strings.Cut(p.errs.String(), "\n")
	require.Regexp(t, "listd starts.* version=.* commit=.* go="+runtime.Version(), first)
	require.Contains(t, metrics, "evenkeel_map_clock_polls_total 0\n")
	require.NotContains(t, metrics, "evenkeel_wall_clock_ahead", "embedded there is no other clock")
	status, _ := get(t, p.admin+"/nothing")
	require.Equal(t, 404, status)

	require.Contains(t, p.errs.String(), "--allow-host", "other hosts can't reach it yet")

	p = start(t, t.TempDir(), "--admin", "0.0.0.0:0", "--admin-token", "sixteen-secrets-")
	p.admin = strings.Replace(p.admin, "[::]", "127.0.0.1", 1)
	var tries sync.WaitGroup
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		for _, sent := range []string{"", "Bearer wrong", "Bearer ", "Basic sixteen-secrets-"} {
			tries.Go(func() { // each is answered late
				req, _ := http.NewRequest(http.MethodGet, p.admin+path, nil)
				req.Header.Set("Authorization", sent)
				resp, err := http.DefaultClient.Do(req)
				if !assert.NoError(t, err) {
					return
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.Equal(t, 401, resp.StatusCode, "%s %q", path, sent)
				assert.NotContains(t, string(body), "secret")
			})
		}
		status, _ := get(t, p.admin+path, "Authorization", "Bearer sixteen-secrets-")
		require.Equal(t, 200, status, path)
	}
	tries.Wait()
	status, _ = get(t, p.admin+"/healthz")
	require.Equal(t, 200, status)
}

// A request that is under way when SIGTERM comes is answered; new ones aren't
// taken; a client that doesn't end its request is cut off at the limit.
func TestShutdownDrains(t *testing.T) {
	p := start(t, t.TempDir(), "--shutdown-timeout", "500ms")
	ok(t, "", "bucket", "create", "abc", "--server", p.s3)
	slow := dial(t, p.s3)
	fmt.Fprintf(slow, "PUT /abc/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhel")
	stuck := dial(t, p.s3)
	fmt.Fprintf(stuck, "PUT /abc/stuck HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhel")
	waitFor(t, func() bool {
		_, body := get(t, p.admin+"/metrics")
		return strings.Contains(body, "evenkeel_s3_requests_in_flight 2")
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	waitFor(t, func() bool { return strings.Contains(p.errs.String(), "waiting for requests under way") })
	fmt.Fprintf(slow, "lo")
	answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode)
	require.Equal(t, daemon.ExitFailed, p.wait(), "one request was cut off")
	require.Contains(t, p.errs.String(), "cut off")
}

// Clients that don't send what they began, or send too much, lose their connections,
// and nothing of what they sent is kept.
func TestSlowAndLargeClientsAreCutOff(t *testing.T) {
	t.Parallel() // it waits for the server's patience
	dir := t.TempDir()
	p := start(t, dir, "--max-header-bytes", "8192")
	ok(t, "", "bucket", "create", "abc", "--server", p.s3)
	sent := func(text string) string {
		conn := dial(t, p.s3)
		fmt.Fprint(conn, text)
		answer, _ := io.ReadAll(conn) // to its end: the server closes
		status, _, _ := strings.Cut(strings.TrimPrefix(string(answer), "HTTP/1.1 "), " ")
		return status
	}
	require.Equal(t, "431", sent("PUT /abc/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"+
		"x-amz-meta-a: "+strings.Repeat("a", 16<<10)+"\r\n\r\n"))
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	p = start(t, dir, "--header-timeout", "100ms", "--body-timeout", "200ms")
	for _, text := range []string{
		"GET /abc?list-type=2 HTTP/1.1\r\nHost: localhost\r\nX-A",
		"PUT /abc/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhel",
		"PUT /abc/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	} {
		// A busy machine may cut them off before it has read even that.
		require.Contains(t, []string{"400", "408", ""}, sent(text), text)
	}
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	p = start(t, dir)
	require.Empty(t, ok(t, "", "ls", "abc", "--server", p.s3))
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// A client that asks and does not read what comes holds a connection and a page of
// keys: not for longer than --answer-timeout.
func TestClientsThatDoNotReadAreCutOff(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	var keys strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&keys, "%0900d\n", i)
	}
	ok(t, keys.String(), "load", "abc", "--create", "--server", p.s3)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	p = start(t, dir, "--answer-timeout", "200ms")
	conn := dial(t, p.s3)
	waitFor(t, func() bool {
		// Answers of a megabyte each, of which the sockets hold a few; then requests
		// stay where they are, until the connection is closed.
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
		_, err := fmt.Fprint(conn, "GET /abc?list-type=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	})
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	p := start(t, t.TempDir(), "--shutdown-timeout", "10m", "--header-timeout", "10m", "--body-timeout", "10m")
	ok(t, "", "bucket", "create", "abc", "--server", p.s3)
	fmt.Fprintf(dial(t, p.s3), "PUT /abc/stuck HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhel")
	waitFor(t, func() bool {
		_, body := get(t, p.admin+"/metrics")
		return strings.Contains(body, "evenkeel_s3_requests_in_flight 1")
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	waitFor(t, func() bool { return strings.Contains(p.errs.String(), "waiting for requests under way") })
	p.end(syscall.SIGTERM)
	require.Equal(t, syscall.SIGTERM, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// Killed in the middle of a load, nothing that was acknowledged is lost; what
// was not is there as it was sent, or not at all.
func TestKilledInTheMiddleOfALoad(t *testing.T) {
	seed := seed.Number(t)
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 3 {
		p := start(t, dir)
		if round == 0 {
			ok(t, "", "bucket", "create", "abc", "--server", p.s3)
		}
		enough := 200 + int(seed%300)
		var mu sync.Mutex
		var wg sync.WaitGroup
		killed := make(chan struct{})
		n := 0
		for worker := range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; ; i++ {
					key := fmt.Sprintf("%d/%d/%d", round, worker, i)
					req, _ := http.NewRequest(http.MethodPut, p.s3+"/abc/"+key, bytes.NewReader([]byte(key)))
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						return // killed
					}
					resp.Body.Close()
					if resp.StatusCode != 200 {
						t.Errorf("PUT %s: %s", key, resp.Status)
						return
					}
					mu.Lock()
					acked[key] = true
					if n++; n == enough {
						close(killed)
					}
					mu.Unlock()
				}
			}()
		}
		<-killed
		require.NoError(t, p.cmd.Process.Kill())
		wg.Wait()
		p.wait()
	}
	p := start(t, dir)
	listed := strings.Split(strings.TrimSuffix(ok(t, "", "ls", "abc", "--server", p.s3), "\n"), "\n")
	require.True(t, slices.IsSorted(listed))
	there := map[string]bool{}
	for _, key := range listed {
		there[key] = true
	}
	for key := range acked {
		require.True(t, there[key], "%s was acknowledged and is lost", key)
	}
	for i := 0; i < len(listed); i += 37 {
		status, body := get(t, p.s3+"/abc/"+listed[i])
		require.Equal(t, 200, status)
		require.Equal(t, listed[i], body)
	}
	t.Logf("%s acknowledged, %s listed", strconv.Itoa(len(acked)), strconv.Itoa(len(listed)))
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// waitFor waits for another process to come to a state.
func waitFor(t *testing.T, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); {
		require.True(t, time.Now().Before(deadline), "the state was not reached")
		time.Sleep(5 * time.Millisecond)
	}
}

// TestPagesOfBrowsers: without keys no page of a browser reaches the server by a name of its
// own, and none of another origin changes anything.
func TestPagesOfBrowsers(t *testing.T) {
	plain := start(t, t.TempDir())
	named := start(t, t.TempDir(), "--allow-host", "s3.test,10.0.0.5", "--host-suffix", "buckets.test")
	for _, p := range []*process{plain, named} {
		ok(t, "a\n", "load", "abc", "--create", "--server", p.s3)
	}
	for _, c := range []struct {
		p       *process
		method  string
		path    string
		headers []string
		want    int
	}{
		{plain, "GET", "/abc", []string{"Host", "localhost"}, 200},
		{plain, "GET", "/abc", []string{"Host", "evil.test"}, 403},
		{plain, "GET", "/", []string{"Host", "10.0.0.5:9000"}, 403},
		{plain, "PUT", "/abc/b", []string{"Host", "evil.test:9000", "Origin", "http://evil.test:9000"}, 403},
		{plain, "PUT", "/abc/b", []string{"Origin", "http://evil.test"}, 403},
		{plain, "DELETE", "/abc/a", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{plain, "POST", "/abc?delete", []string{"Origin", "null", "Content-Type", "text/plain"}, 403},
		{plain, "PUT", "/evil", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{plain, "GET", "/abc/a", nil, 200},
		{plain, "PUT", "/abc/b", nil, 200},
		{named, "PUT", "/abc/b", []string{"Host", "S3.test:9000"}, 200},
		{named, "PUT", "/abc/b", []string{"Host", "10.0.0.5"}, 200},
		{named, "PUT", "/b", []string{"Host", "abc.buckets.test"}, 200},
		{named, "PUT", "/abc/b", []string{"Host", "evil.test"}, 403},
	} {
		r, err := http.NewRequest(c.method, c.p.s3+c.path, nil)
		require.NoError(t, err)
		for i := 0; i < len(c.headers); i += 2 {
			if r.Header.Set(c.headers[i], c.headers[i+1]); c.headers[i] == "Host" {
				r.Host = c.headers[i+1]
			}
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.want, resp.StatusCode, "%s %s %q: %s", c.method, c.path, c.headers, body)
		if c.want == 403 {
			require.Regexp(t, "allow-host|another origin", string(body))
		}
	}
	require.Equal(t, "a\nb\n", ok(t, "", "ls", "abc", "--server", plain.s3))
}
