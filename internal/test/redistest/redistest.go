// Package redistest runs real Redis servers for tests. Each server listens on a free loopback port, and has its data in
// a temporary directory.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// Server is one Redis server. Only one goroutine at a time may use the methods.
type Server struct {
	// Addr is the address of the server, as host:port. Addr does not change when the server is restarted.
	Addr string

	t       testing.TB
	dir     string
	port    int
	args    []string // after those of every server
	process *os.Process
	exited  <-chan struct{}
}

// Start starts a server that ends with the test t. Every write is on disk before it is acknowledged, so that Kill loses
// nothing. Besides 127.0.0.1, the server listens on the addresses in also, at the same port. If redis-server is not
// installed, Start skips the test, or fails the test if $EVENKEEL_NEED_REDIS is set.
func Start(t testing.TB, also ...string) *Server {
	t.Helper()
	if len(also) == 0 {
		return start(t, none)
	}
	return start(t, func(*Server) ([]string, error) { return append([]string{"--bind", "127.0.0.1"}, also...), nil })
}

// Serve starts a server without a test, with its data in dir. The caller ends the server by Kill, and removes dir.
func Serve(dir string) (*Server, error) { return serve(dir, none) }

func none(*Server) ([]string, error) { return nil, nil }

// start starts a server that ends with the test t. The function args returns further arguments for the server.
func start(t testing.TB, args func(*Server) ([]string, error)) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("EVENKEEL_NEED_REDIS") != "" {
			t.Fatal("there is no redis-server: run scripts/install-tools")
		}
		t.Skip("there is no redis-server: scripts/install-tools installs it")
	}
	s, err := serve(t.TempDir(), args)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

func serve(dir string, args func(*Server) ([]string, error)) (s *Server, err error) {
	const tries = 5 // another process may take the port before the server does
	for range tries {
		s = &Server{dir: dir}
		if s.port, err = child.FreePort(); err != nil {
			return nil, err
		}
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		if s.args, err = args(s); err != nil {
			return nil, err
		}
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// Restart starts a killed server again, over the data that the server left.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill kills the server, like kill -9, and waits until its process has ended. A server that does not run is left as it
// is.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended by itself
	<-s.exited
	s.process = nil
}

// Wipe kills the server if it runs, and removes the server's data.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Kill()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			s.t.Fatal(err)
		}
	}
}

// MaxMemory makes the server refuse writes beyond n bytes of memory. 0 stands for no limit.
func (s *Server) MaxMemory(n int) {
	s.t.Helper()
	if out, err := s.ask("config set maxmemory " + strconv.Itoa(n)); err != nil || !strings.HasPrefix(out, "OK") {
		s.t.Fatalf("redis-cli: %v: %s", err, out)
	}
}

// ask sends commands, one per line, over one connection, and returns the answers.
func (s *Server) ask(commands string) (string, error) {
	cmd := exec.Command("redis-cli", "-p", strconv.Itoa(s.port))
	cmd.Stdin = strings.NewReader(commands + "\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *Server) start() error {
	cmd := exec.Command("redis-server", append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction",
		"--protected-mode", "no",
	}, s.args...)...)
	if len(s.args) == 1 { // all of them are in a file
		cmd = exec.Command("redis-server", s.args[0], "--sentinel")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	exited, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting redis-server: %w", err)
	}
	s.process, s.exited = cmd.Process, exited
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.await(ctx); err != nil {
		s.Kill()
		return fmt.Errorf("redis-server on port %d did not come up: %w\n%s", s.port, err, out.Bytes())
	}
	return nil
}

// await waits until the server has loaded its data and answers.
func (s *Server) await(ctx context.Context) error {
	for {
		if answers(s.Addr) {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("the process ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 5)
	n, err := c.Read(answer)
	return err == nil && string(answer[:n]) == "+PONG"
}
