package oncassandra

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// programs are listd, rebalancer and run-cassandra; dir is for the test's files.
type programs struct {
	t        *testing.T
	dir, bin string
	// patience bounds each program that is run to its end; 0: the test's own end.
	patience time.Duration
}

// binaries is the folder of the programs, built once.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

func build(t *testing.T) *programs {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Cassandra node: not in -short")
	}
	b := &binaries
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "evenkeel-programs-"); b.err != nil {
			return
		}
		const module = "github.com/evenkeel/evenkeel/"
		out, err := exec.Command("go", "build", "-trimpath", "-o", b.dir+"/", module+"cmd/...", module+"internal/cassandratest/cmd/run-cassandra").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, b.err)
	return &programs{t: t, dir: t.TempDir(), bin: b.dir}
}

func removeBinaries() {
	if binaries.dir != "" {
		_ = os.RemoveAll(binaries.dir)
	}
}

// try runs a program to its end.
func (p *programs) try(name string, args ...string) (code int, out, errs string) {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	ctx := p.t.Context()
	if p.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.patience)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		require.IsType(p.t, &exec.ExitError{}, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// run runs a program that has to succeed.
func (p *programs) run(name string, args ...string) string {
	p.t.Helper()
	code, out, errs := p.try(name, args...)
	require.Equal(p.t, 0, code, "%s %q: %s", name, args, errs)
	return out
}

// site is a keyspace, and how programs reach it.
type site struct {
	host, keyspace string
	copies         bool // demand more than one of everything
	more           []string
}

// newSite names a keyspace that is dropped with the test; it is not made.
func newSite(t *testing.T, host string) site {
	s := site{host: host, keyspace: "t" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	t.Cleanup(func() { dropKeyspace(t, s) })
	return s
}

func (s site) flags() []string {
	flags := []string{"--cassandra", s.host, "--keyspace", s.keyspace}
	if !s.copies {
		flags = append(flags, "--allow-single-replica")
	}
	return append(flags, s.more...)
}

// laidOut makes a keyspace with the program.
func laidOut(p *programs, host string) site {
	s := newSite(p.t, host)
	p.run("rebalancer", append([]string{"schema", "apply", "--replication", "dc1=1"}, s.flags()...)...)
	return s
}

// server is a running listd.
type server struct {
	t         *testing.T
	s3, admin string
	cmd       *exec.Cmd
	log       *lockedBuffer
	ended     chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts listd over a keyspace and waits until it serves.
func (p *programs) serve(s site, args ...string) *server {
	p.t.Helper()
	args = append(append([]string{"serve", "--local-dc", "dc1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, s.flags()...), args...)
	srv := &server{t: p.t, cmd: exec.Command(filepath.Join(p.bin, "listd"), args...), log: &lockedBuffer{}, ended: make(chan struct{})}
	srv.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	srv.cmd.Stderr = srv.log
	out, err := srv.cmd.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, srv.cmd.Start())
	p.t.Cleanup(func() {
		_ = srv.cmd.Process.Kill()
		<-srv.ended
		if p.t.Failed() {
			p.t.Logf("the log of %s:\n%s", srv.s3, srv.log)
		}
	})
	lines := bufio.NewScanner(out)
	for _, to := range []struct {
		prefix string
		field  *string
	}{{"S3 on ", &srv.s3}, {"admin on ", &srv.admin}} {
		if lines.Scan() {
			*to.field, _ = strings.CutPrefix(lines.Text(), to.prefix)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = srv.cmd.Wait()
		close(srv.ended)
	}()
	if srv.s3 == "" || srv.admin == "" {
		<-srv.ended
		require.FailNow(p.t, "listd does not serve", "%s", srv.log)
	}
	return srv
}

// end sends a signal and returns the exit code.
func (s *server) end(signal os.Signal) int {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(signal))
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		require.FailNow(s.t, "listd did not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

var client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// answer to an HTTP request.
type answer struct {
	status int
	header http.Header
	body   string
}

func request(t *testing.T, method, url, body string) answer {
	t.Helper()
	a, err := requestOf(method, url, body)
	require.NoError(t, err)
	return a
}

func requestOf(method, url, body string, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// TestProgramsShareAKeyspace: what one server acknowledged the other one lists,
// and what was deleted through one is gone in both.
func TestProgramsShareAKeyspace(t *testing.T) {
	p := build(t)
	s := laidOut(p, cassandra.Address(t))
	a, b := p.serve(s), p.serve(s)
	p.run("listd", "bucket", "create", "abc", "--server", a.s3)
	for i := range 50 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		key := fmt.Sprintf("k%02d", i)
		require.Equal(t, 200, request(t, "PUT", from.s3+"/abc/"+key, key).status)
		require.Equal(t, answer{200, nil, key}, bare(request(t, "GET", to.s3+"/abc/"+key, "")))
		if i%5 == 0 {
			require.Equal(t, 204, request(t, "DELETE", to.s3+"/abc/"+key, "").status)
			require.Equal(t, 404, request(t, "GET", from.s3+"/abc/"+key, "").status)
		}
	}
	want := ""
	for i := range 50 {
		if i%5 != 0 {
			want += fmt.Sprintf("k%02d\n", i)
		}
	}
	for _, srv := range []*server{a, b} {
		require.Equal(t, want, p.run("listd", "ls", "abc", "--server", srv.s3))
		require.Equal(t, "abc\n", p.run("listd", "bucket", "list", "--server", srv.s3))
		require.Equal(t, 200, request(t, "GET", srv.admin+"/readyz", "").status)
	}
	metrics := request(t, "GET", a.admin+"/metrics", "").body
	for name, above := range map[string]float64{
		"evenkeel_map_clock_polls_total": 1, "evenkeel_lease_root_reads_total": 1, "evenkeel_wall_clock_answers_total": 1, "evenkeel_map_cache_buckets": 1,
		"evenkeel_wall_clock_error_seconds": 0, "evenkeel_wall_clock_refusals_total": 0, `evenkeel_wall_clock_ahead_of_server_seconds{server="` + s.host + `:9042"}`: -0.5,
	} {
		at := strings.Index(metrics, "\n"+name+" ")
		require.Positive(t, at, "%s in %s", name, metrics)
		var value float64
		_, err := fmt.Sscan(metrics[at+len(name)+2:], &value)
		require.NoError(t, err)
		require.GreaterOrEqual(t, value, above, name)
	}
	// A bucket that was deleted through one is gone in the other.
	p.run("listd", "bucket", "create", "gone", "--server", b.s3)
	require.Equal(t, 200, request(t, "PUT", a.s3+"/gone/k", "v").status)
	code, _, errs := p.try("listd", "bucket", "delete", "gone", "--server", b.s3)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "BucketNotEmpty")
	require.Equal(t, 204, request(t, "DELETE", b.s3+"/gone/k", "").status)
	p.run("listd", "bucket", "delete", "gone", "--server", a.s3)
	require.Equal(t, 404, request(t, "PUT", b.s3+"/gone/k", "v").status)
	for _, srv := range []*server{a, b} {
		require.Equal(t, "abc\n", p.run("listd", "bucket", "list", "--server", srv.s3))
		require.Equal(t, 0, srv.end(syscall.SIGTERM), srv.log)
	}
}

func bare(a answer) answer { a.header = nil; return a }

// TestProgramsRefuseToStart on a keyspace on which they could not keep their
// promises, and say what to do.
func TestProgramsRefuseToStart(t *testing.T) {
	p := build(t)
	p.patience = time.Minute // a server that is not refused would go on
	host := cassandra.Address(t)
	refused := func(s site, says string, args ...string) {
		t.Helper()
		args = append(append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, s.flags()...), args...)
		code, out, errs := p.try("listd", append(args, "--log-level", "error")...)
		require.Equal(t, 3, code, errs)
		require.Empty(t, out)
		require.Contains(t, errs, says)
	}
	refused(newSite(t, host), "rebalancer schema apply", "--local-dc", "dc1")
	s := laidOut(p, host)
	refused(s, `no data centre "dc9"`, "--local-dc", "dc9")
	refused(site{host: "127.0.0.1:1", keyspace: s.keyspace}, "is Cassandra running there", "--local-dc", "dc1")
	refused(site{host: host, keyspace: s.keyspace, copies: true}, "one copy", "--local-dc", "dc1")
	require.Equal(t, 0, p.serve(s, "--lease", "2s").end(syscall.SIGTERM))
	refused(s, "a lease of 2s", "--local-dc", "dc1")
	require.Equal(t, 0, p.serve(s, "--change-lease").end(syscall.SIGTERM))
	refused(s, "a lease of 3s", "--local-dc", "dc1", "--lease", "2s")
	code, _, errs := p.try("rebalancer", append([]string{"split", "abc", "--at", "m", "--local-dc", "dc1", "--lease", "1s"}, s.flags()...)...)
	require.NotZero(t, code)
	require.Contains(t, errs, "a lease of 3s")
	for _, c := range []struct{ cql, says string }{
		{"ALTER TABLE rows WITH default_time_to_live = 60", "default_time_to_live is 60"},
		{"ALTER TABLE rows WITH default_time_to_live = 0", ""},
		{"DROP TABLE busy", "the table is missing"},
		{"CREATE TABLE busy (key text PRIMARY KEY)", "use a fresh keyspace"},
		{"ALTER KEYSPACE " + s.keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "SimpleStrategy"},
	} {
		cql(t, s, c.cql)
		if c.says == "" {
			require.Equal(t, 0, p.serve(s).end(syscall.SIGTERM))
			continue
		}
		refused(s, c.says, "--local-dc", "dc1")
	}
}
