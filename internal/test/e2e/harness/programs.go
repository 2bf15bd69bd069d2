package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// ProgramsVariable is the name of the environment variable with the directory of programs that were already built from
// the present sources.
const ProgramsVariable = "EVENKEEL_TEST_PROGRAMS"

// Programs runs the programs listd, rebalancer and run-cassandra for a test.
type Programs struct {
	T testing.TB
	// Bin is the directory of the programs. Dir is a directory for files of the test.
	Bin, Dir string
	// Patience is the time limit of each program that is run to its end. With 0 only the end of the test limits it.
	Patience time.Duration
	// Environment has environment variables for the programs, in addition to those of the test.
	Environment []string
	// Enter is the beginning of a command line that runs the programs elsewhere, e.g. in a network of their own. If it
	// is empty, they run here.
	Enter []string
}

var binaries struct {
	once sync.Once
	dir  string
	made bool
	err  error
}

// Build builds the programs, once in each process, and returns them for the test t. Packages that call Build must run
// their tests by the function Run, which removes the programs.
func Build(t testing.TB) *Programs {
	t.Helper()
	b := &binaries
	b.once.Do(func() {
		if b.dir = os.Getenv(ProgramsVariable); b.dir != "" {
			// The look at each tells `go test` what a result in its cache rests on.
			for _, name := range []string{"listd", "rebalancer", "run-cassandra"} {
				if _, err := os.Stat(filepath.Join(b.dir, name)); err != nil {
					b.err = errors.Join(b.err, fmt.Errorf("%s: %w (make programs builds them)", ProgramsVariable, err))
				}
			}
			return
		}
		if b.dir, b.err = os.MkdirTemp("", "evenkeel-programs-"); b.err != nil {
			return
		}
		b.made = true
		const module = "github.com/evenkeel/evenkeel/"
		out, err := exec.Command("go", "build", "-o", b.dir+"/", module+"cmd/...",
			module+"internal/test/cassandratest/cmd/run-cassandra").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, b.err)
	return &Programs{T: t, Bin: b.dir, Dir: t.TempDir()}
}

// Run runs the tests of a package, and returns their exit code. Afterwards it stops the Cassandra node that the tests
// share, which is nil if they share none, and removes the programs if Build has built them.
func Run(m *testing.M, node *cassandratest.Shared) (code int) {
	if node != nil {
		code = node.Run(m)
	} else {
		code = m.Run()
	}
	if binaries.made {
		_ = os.RemoveAll(binaries.dir)
	}
	return code
}

// Command returns a command that runs a program with the given arguments. The command is not started yet.
func (p *Programs) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	line := slices.Concat(p.Enter, []string{filepath.Join(p.Bin, name)}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), p.Environment...)
	return cmd
}

// Try runs a program until it ends, and returns its exit code, its output and its error output.
func (p *Programs) Try(name string, args ...string) (code int, out, errs string) {
	p.T.Helper()
	ctx := p.T.Context()
	if p.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Patience)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	cmd := p.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	exited, err := child.Start(cmd)
	require.NoError(p.T, err)
	<-exited
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// Run runs a program until it ends, and returns its output. If the program fails, Run fails the test.
func (p *Programs) Run(name string, args ...string) string {
	p.T.Helper()
	code, out, errs := p.Try(name, args...)
	require.Equal(p.T, 0, code, "%s %q: %s", name, args, errs)
	return out
}

// Server is a running listd or rebalancer, with its addresses. A rebalancer has no S3 address.
type Server struct {
	S3, Admin string
	Cmd       *exec.Cmd
	Log       *Log
	Ended     <-chan struct{} // closed when it has ended

	t testing.TB
}

// Serve starts a listd on free ports, and waits until it serves. The listd ends with the test. If the test fails, the
// log of the listd is printed.
func (p *Programs) Serve(args ...string) *Server {
	p.T.Helper()
	return p.serve("listd", append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...),
		true)
}

// Rebalance starts the daemon of rebalancer for the keyspace of s, on a free port, and waits until the daemon is ready.
func (p *Programs) Rebalance(s Site, args ...string) *Server {
	p.T.Helper()
	return p.serve("rebalancer", append(s.Flags("run", "--local-dc", "dc1", "--admin-listen", "127.0.0.1:0"), args...),
		false)
}

func (p *Programs) serve(program string, args []string, s3 bool) *Server {
	p.T.Helper()
	// Not the test's context: Kill is the only way to end it other than by a signal.
	s := &Server{t: p.T, Cmd: p.Command(context.Background(), program, args...), Log: &Log{}}
	s.Cmd.Stderr = s.Log
	read, write, err := os.Pipe()
	require.NoError(p.T, err)
	s.Cmd.Stdout = write
	s.Ended, err = child.Start(s.Cmd)
	_ = write.Close()
	require.NoError(p.T, err)
	p.T.Cleanup(func() {
		s.Kill()
		if p.T.Failed() {
			p.T.Logf("the log of %s, %s:\n%.*s", program, s.Admin, shownLog, s.Log)
		}
	})
	lines := bufio.NewScanner(read)
	for _, to := range []struct {
		prefix string
		field  *string
	}{{"S3 on ", &s.S3}, {"admin on ", &s.Admin}} {
		if (s3 || to.field != &s.S3) && lines.Scan() {
			*to.field, _ = strings.CutPrefix(lines.Text(), to.prefix)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, read)
		_ = read.Close()
	}()
	if s3 && !strings.HasPrefix(s.S3, "http") || !strings.HasPrefix(s.Admin, "http://") {
		s.Kill()
		require.FailNow(p.T, program+" does not serve", "%q %q %s", s.S3, s.Admin, s.Log)
	}
	return s
}

// Kill kills the server at once, by SIGKILL. It does nothing if the server has ended already.
func (s *Server) Kill() {
	_ = s.Cmd.Process.Kill()
	<-s.Ended
}

// End sends a signal to the server, waits until the server has ended, and returns its exit code.
func (s *Server) End(signal os.Signal) int {
	s.t.Helper()
	require.NoError(s.t, s.Cmd.Process.Signal(signal))
	select {
	case <-s.Ended:
	case <-time.After(time.Minute):
		require.FailNow(s.t, "it did not end", "%s", s.Log)
	}
	return s.Cmd.ProcessState.ExitCode()
}

// FailedRequests returns the lines of the server's metrics that count answers with a status of 500 or above.
func (s *Server) FailedRequests() []string {
	s.t.Helper()
	body := Request(s.t, "GET", s.Admin+"/metrics", "").Body
	return regexp.MustCompile(`(?m)^evenkeel_s3_requests_total\{[^}]*status="5\d\d"[^}]*\}.*$`).FindAllString(body, -1)
}

// Site is a keyspace in Cassandra, given by its name and the address of a node.
type Site struct {
	Host, Name string
	Copies     bool // demand more than one of everything
	More       []string
}

// NewSite returns a site with a random name of a keyspace, which it does not create. The keyspace is dropped when the
// test t ends.
func NewSite(t testing.TB, host string) Site {
	s := Site{Host: host, Name: KeyspaceName()}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		admin, err := cassandrastore.OpenAdmin(ctx,
			Patient(cassandrastore.Options{Hosts: []string{s.Host}, Keyspace: s.Name}))
		if err != nil {
			return // the node was ended
		}
		defer admin.Close()
		_ = admin.Drop(ctx)
	})
	return s
}

// LaidOut creates a keyspace with evenkeel's tables, by the program rebalancer, and returns its site.
func (p *Programs) LaidOut(host string) Site {
	p.T.Helper()
	s := NewSite(p.T, host)
	// A node that lays out several keyspaces on a busy machine may take longer than
	// the program waits. Doing it again is harmless.
	Eventually(p.T, "the schema is laid out", func() bool {
		code, _, errs := p.Try("rebalancer", s.Flags("schema", "apply", "--replication", "dc1=1")...)
		require.True(p.T, code == 0 || strings.Contains(errs, ": timeout: "), "exit code %d: %s", code, errs)
		return code == 0
	})
	return s
}

// Flags returns the words of a command, followed by the flags by which programs find the keyspace.
func (s Site) Flags(command ...string) []string {
	flags := append(append([]string{}, command...), "--cassandra", s.Host, "--keyspace", s.Name)
	if !s.Copies {
		flags = append(flags, "--allow-single-replica")
	}
	return append(flags, s.More...)
}

// Options returns the options with which the package cassandrastore opens the keyspace, through a node of the data
// centre dc1.
func (s Site) Options() cassandrastore.Options {
	return cassandrastore.Options{
		Hosts: []string{s.Host}, DataCentre: "dc1", Keyspace: s.Name, AllowSingleReplica: !s.Copies,
	}
}

// ServeSite starts a listd that uses the keyspace of s, in the data centre dc1.
func (p *Programs) ServeSite(s Site, args ...string) *Server {
	p.T.Helper()
	return p.Serve(append(s.Flags("--local-dc", "dc1"), args...)...)
}

const (
	// keptLog is the number of bytes that are kept of a program's log, and shownLog is the number of bytes that are
	// shown.
	keptLog, shownLog = 16 << 20, 64 << 10
)

// Log is a buffer for the output of a program. It keeps the beginning of the output, and counts the rest. It is safe
// for concurrent use.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
	n  int64
}

// Write appends a part of the program's output to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += int64(len(p))
	l.b.Write(p[:min(len(p), keptLog-l.b.Len())])
	return len(p), nil
}

// String returns the output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Written returns the number of bytes written so far.
func (l *Log) Written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
