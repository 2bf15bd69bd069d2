// Package s3test runs an S3 server of another project for tests: versitygw over a temporary directory, on a free
// loopback port.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// The access key and the secret key of the server's only user, and the server's region.
const (
	AccessKey = "evenkeel"
	SecretKey = "not a secret"
	Region    = "eu-north-7"
)

// Server is one S3 server. Only one goroutine at a time may use the methods.
type Server struct {
	// URL is the address of the server. URL does not change when the server is restarted.
	URL string
	// Client is a client of the server that may do everything.
	Client *minio.Client

	t        testing.TB
	program  string
	dir      string
	versions string // the folder of versions that are not the newest
	addr     string
	process  *os.Process
	exited   <-chan struct{}
}

// built returns the path of the program versitygw. The go command builds the program once, and keeps it in its cache.
var built = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/evenkeel/evenkeel").Output()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-n", "versitygw")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(module)), "internal/test/s3test/server")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building versitygw: %w: %s", err, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
})

// Start starts a server that ends with the test t.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	const tries = 5 // another process may take the port before the server does
	for range tries {
		s := &Server{t: t, program: program, dir: t.TempDir(), versions: t.TempDir()}
		port, err := child.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.URL = "http://" + s.addr
		if s.Client, err = minio.New(s.addr, &minio.Options{
			Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: Region,
			Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		}); err != nil {
			t.Fatal(err)
		}
		if err = s.start(); err == nil {
			t.Cleanup(s.Kill)
			return s
		}
		t.Log(err)
	}
	t.Fatal("versitygw does not start")
	return nil
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

func (s *Server) start() error {
	cmd := exec.Command(s.program, "--port", s.addr, "--access", AccessKey, "--secret", SecretKey, "--region", Region,
		"--quiet", "--keep-alive", "--health", "/health", "posix", "--versioning-dir", s.versions, s.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	exited, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting versitygw: %w", err)
	}
	s.process, s.exited = cmd.Process, exited
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-exited:
			return fmt.Errorf("versitygw has ended: %s", out.Bytes())
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("versitygw does not answer: %s", out.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
