// Package redistest runs real Redis servers for tests: each on a free loopback
// port, with its data in a temporary folder.
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

// Server is one Redis server. Its methods are for one goroutine at a time.
type Server struct {
	// Addr is host:port; it stays the same through restarts.
	Addr string

	t       testing.TB
	dir     string
	port    int
	args    []string // after those of every server
	process *os.Process
	exited  <-chan struct{}
}

// Start starts a server that ends with the test. Every write is on its disk
// before it is acknowledged, so that Kill loses nothing. The test is skipped with
// a message where there is no redis-server, unless $EVENKEEL_NEED_REDIS is set. Beside
// 127.0.0.1 it listens on the given addresses, at the same port.
func Start(t testing.TB, also ...string) *Server {
	t.Helper()
	if len(also) == 0 {
		return start(t, none)
	}
	return start(t, func(*Server) ([]string, error) { return append([]string{"--bind", "127.0.0.1"}, also...), nil })
}

// Serve is Start without a test: the caller ends the server by Kill, and removes its data in dir.
func Serve(dir string) (*Server, error) { return serve(dir, none) }

func none(*Server) ([]string, error) { return nil, nil }

// start starts a server with the arguments that args returns for it.
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

// Restart starts a server that was killed, over the data that it left.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill is kill -9, and waits for the end. A server that does not run stays so.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended by itself
	<-s.exited
	s.process = nil
}

// Wipe removes the data of a server, which is killed for it if it runs.
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

// MaxMemory makes the server refuse writes beyond so many bytes; 0 for no bound.
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

// await waits until the server has loaded its data.
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
