package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// binary is the program itself, built once for all packages, or for this one.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if built := os.Getenv(harness.ProgramsVariable); built != "" {
			binary = filepath.Join(built, "listd")
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "listd-test")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "listd")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("go build: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// outcome is what came of running the program.
type outcome struct {
	code     int
	out, err string
}

// listd runs the program within this process.
func listd(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	// A serve that should have been refused ends, too.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := run(ctx, args, stdio{strings.NewReader(stdin), &out, &errs})
	return outcome{code, out.String(), errs.String()}
}

// ok runs the program, which must succeed, and returns its output.
func ok(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	o := listd(t, stdin, args...)
	require.Equal(t, 0, o.code, "listd %q: %s", args, o.err)
	return o.out
}

// memServer serves the dialect from memory, behind middleware if there is any.
func memServer(t *testing.T, middleware ...func(http.Handler) http.Handler) string {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var h http.Handler
	h, err = s3api.New(s3api.Over(c), s3api.Options{})
	require.NoError(t, err)
	for _, m := range middleware {
		h = m(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// process is a running `listd serve`.
type process struct {
	t         *testing.T
	cmd       *exec.Cmd
	s3, admin string
	errs      *lockedBuffer
	exited    chan error
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

// start runs `listd serve` over dir and waits until it says where.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startBy(t, []string{binary}, dir, args...)
}

// startBy is start by a command that runs the program with the arguments behind it.
func startBy(t *testing.T, command []string, dir string, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	args = append(command[1:len(command):len(command)], args...)
	p := &process{t: t, cmd: exec.Command(command[0], args...), errs: &lockedBuffer{}, exited: make(chan error, 1)}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = p.errs
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for _, prefix := range []string{"S3 on ", "admin on "} {
		require.True(t, lines.Scan(), "listd serve said nothing: %s", p.errs)
		address, found := strings.CutPrefix(lines.Text(), prefix)
		require.True(t, found, "%q", lines.Text())
		if prefix == "S3 on " {
			p.s3 = address
		} else {
			p.admin = address
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		p.exited <- p.cmd.Wait()
	}()
	return p
}

// end sends a signal and waits for the end; it returns the exit code.
func (p *process) end(signal os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	return p.wait()
}

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		p.t.Fatal("listd serve did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// get fetches a page; its status and text.
func get(t *testing.T, url string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}
