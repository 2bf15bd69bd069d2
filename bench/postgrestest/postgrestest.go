// Package postgrestest runs real PostgreSQL servers for tests and measurements. Each server listens on a free loopback
// port, and has its data in a temporary directory.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// ErrMissing is the error if PostgreSQL is not installed on this machine.
var ErrMissing = errors.New("there is no PostgreSQL here: scripts/install-tools installs it")

// Options are settings of a PostgreSQL server.
type Options struct {
	// NoSync turns off all syncs to disk. Tests of results set NoSync to be fast. Measurements do not.
	NoSync bool
	// Settings are further settings of the server, each as name=value.
	Settings []string
}

// Server is one running PostgreSQL server, with an empty database. The method Close ends the server.
type Server struct {
	// URL is the address for clients, which includes the name of a database that is empty at first. The server asks for
	// no password.
	URL string
	// Version is the version of the server, e.g. 15.18.
	Version string

	dir     string
	process *os.Process
	exited  <-chan struct{}
}

// startTimeout is the time limit for the start of a server, which usually takes a second.
const startTimeout = time.Minute

// Start starts a server. The caller stops the server by Close. If PostgreSQL is not installed, the error is ErrMissing.
func Start(ctx context.Context, o Options) (s *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	attr, uid, gid, err := dieWithParent()
	if err != nil {
		return nil, err
	}
	s = &Server{}
	if s.dir, err = os.MkdirTemp("", "evenkeel-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err = os.Chown(s.dir, uid, gid); err != nil {
		return s, err
	}
	data := filepath.Join(s.dir, "data")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "evenkeel", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.dir, attr
	if out, err := run(cmd); err != nil {
		return s, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	const tries = 5 // another process may take the port before the server does
	for range tries {
		if err = s.start(ctx, bin, data, attr, o); err == nil {
			return s, nil
		}
	}
	return s, err
}

// run runs cmd, and returns the command's output. The calling goroutine keeps its thread until the child process ends,
// because the kernel kills the child when that thread ends.
func run(cmd *exec.Cmd) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.CombinedOutput()
}

func (s *Server) start(ctx context.Context, bin, data string, attr *syscall.SysProcAttr, o Options) error {
	port, err := child.FreePort()
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", s.dir}
	settings := o.Settings
	if o.NoSync {
		settings = append([]string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"}, settings...)
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), args...)
	var out bytes.Buffer
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, attr, &out, &out
	exited, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting postgres: %w", err)
	}
	s.process, s.exited = cmd.Process, exited
	s.URL = fmt.Sprintf("postgres://evenkeel@127.0.0.1:%d/postgres?sslmode=disable", port)
	if err := s.await(ctx); err != nil {
		s.stop()
		return fmt.Errorf("postgres on port %d did not come up: %w\n%s", port, err, out.Bytes())
	}
	return nil
}

// await waits until the server answers, and reads the server's version. It returns an error if the process or ctx ends
// first.
func (s *Server) await(ctx context.Context) error {
	for {
		c, err := pgx.Connect(ctx, s.URL)
		if err == nil {
			s.Version, _, _ = strings.Cut(c.PgConn().ParameterStatus("server_version"), " ")
			return c.Close(ctx)
		}
		select {
		case <-s.exited:
			return errors.New("the process ended")
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server at once, without a clean shutdown, as its data is not needed any more.
func (s *Server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Signal(syscall.SIGQUIT) // it may have ended by itself
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		_ = s.process.Kill()
		<-s.exited
	}
	s.process = nil
}

// Close ends the server, and removes the server's data.
func (s *Server) Close() error {
	s.stop()
	return os.RemoveAll(s.dir)
}

// New starts a server that ends with the test t. If PostgreSQL is not installed, New skips the test, or fails the test
// if $EVENKEEL_NEED_POSTGRES is set.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(context.Background(), Options{NoSync: true})
	if errors.Is(err, ErrMissing) && os.Getenv("EVENKEEL_NEED_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// binaries returns the directory of the server's programs. Debian keeps these programs outside of the search path, in a
// directory for each version. The newest version wins.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrMissing
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func version(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb)))) // 0 is the oldest
	return n
}
