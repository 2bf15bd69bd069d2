// Command run-cassandra lets a user try several servers over one keyspace. It starts a Cassandra node, and a Redis that
// counts sizes, creates the schema, starts two listd, prints what to try, and stops everything at Ctrl-C. The programs
// listd and rebalancer must be in the same directory:
//
//	make run-cassandra
//
// The data is in temporary directories, which are removed at the end. The node is configured to start fast, as in the
// tests, and not to keep data.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	first := flag.Int("first", 9000,
		"port of the first listd on 127.0.0.1, its admin address is on the next; 0 takes free ones")
	second := flag.Int("second", 9100, "the same for the second")
	flag.Parse()
	if err := run(ctx, *first, *second); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "run-cassandra:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, ports ...int) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(self)
	if err := portsFree(ports); err != nil {
		return err
	}
	fmt.Printf("starting Cassandra %s, which takes about ten seconds …\n", cassandratest.Version)
	cluster, err := cassandratest.Start(ctx, cassandratest.Options{Patient: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	redis, end, err := counters()
	if err != nil {
		return err
	}
	defer end()
	host := cluster.Nodes[0].Address
	reach := []string{"--cassandra", host, "--local-dc", cluster.Nodes[0].DataCentre, "--allow-single-replica"}

	out, err := exec.CommandContext(ctx, filepath.Join(bin, "rebalancer"),
		append([]string{"schema", "apply", "--replication", "dc1=1"}, reach...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("laying out the schema: %w\n%s", err, out)
	}
	fmt.Printf("Cassandra on %s:%d, keyspace evenkeel, data in a temporary folder that goes when this ends\n", host,
		cassandratest.Port)

	fmt.Printf("Redis on %s, which counts sizes; its data goes, too\n", redis)

	ended := make(chan error, len(ports))
	var servers []*server
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.end())
		}
	}()
	for _, port := range ports {
		s, err := serve(filepath.Join(bin, "listd"), port, append(reach, "--counter", "redis://"+redis+"/0"), ended)
		if err != nil {
			return err
		}
		servers = append(servers, s)
		fmt.Printf("listd %d: S3 on %s, admin on %s\n", len(servers), s.s3, s.admin)
	}
	fmt.Printf(`
Try in another terminal, where a key goes in through one server and comes out of the other:

  find /usr/share | bin/listd load files --create --server %[1]s
  bin/listd ls files --prefix /usr/share/ --delimiter / --server %[2]s
  curl -s -X PUT --data hello %[2]s/files/greeting && curl -s %[1]s/files/greeting
  curl -s %[3]s/metrics | grep evenkeel_wall_clock
  bin/rebalancer status files --admin %[3]s
  bin/rebalancer schema check %[4]s

Ctrl-C ends everything.
`, servers[0].s3, servers[1].s3, servers[0].admin, strings.Join(reach, " "))
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Println("ending …")
		return nil
	}
}

// counters starts a Redis, and returns its address. The caller stops the Redis by calling end.
func counters() (addr string, end func(), err error) {
	dir, err := os.MkdirTemp("", "evenkeel-redis")
	if err != nil {
		return "", nil, err
	}
	s, err := redistest.Serve(dir)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("%w (scripts/install-tools installs redis-server)", err), os.RemoveAll(dir))
	}
	return s.Addr, func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	}, nil
}

// server is a running listd, with the URLs of its S3 and admin addresses.
type server struct {
	cmd       *exec.Cmd
	exited    <-chan struct{}
	s3, admin string
}

// serve starts the program listd, and waits until it serves. port is the S3 port, and reach has the flags for
// Cassandra. If listd ends by itself, serve sends an error to ended.
func serve(listd string, port int, reach []string, ended chan<- error) (*server, error) {
	admin := 0
	if port != 0 {
		admin = port + 1
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	args := append([]string{"serve", "--listen", at(port), "--admin", at(admin), "--log-level", "error"}, reach...)
	s := &server{cmd: exec.Command(listd, args...)}
	s.cmd.Stderr = os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout = write
	s.exited, err = child.Start(s.cmd)
	_ = write.Close()
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	lines := bufio.NewScanner(read)
	for _, field := range []*string{&s.s3, &s.admin} {
		if lines.Scan() {
			_, *field, _ = strings.Cut(lines.Text(), " on ")
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, read)
		_ = read.Close()
	}()
	if s.s3 == "" || s.admin == "" {
		<-s.exited
		return nil, errors.New("listd did not start: see above")
	}
	go func() {
		<-s.exited
		ended <- errors.New("a listd ended: see above")
	}()
	return s, nil
}

// end asks the server to end, and waits up to 20 s. After that time, end kills the server and returns an error.
func (s *server) end() error {
	const patience = 20 * time.Second
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		return nil
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return fmt.Errorf("listd on %s did not end within %v and was killed", s.s3, patience)
	}
}

// portsFree returns an error if one of the ports, or the port after it, is in use. The check comes before the slow
// start of a node.
func portsFree(ports []int) error {
	for _, port := range ports {
		for _, p := range []int{port, port + 1} {
			if port == 0 {
				continue
			}
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
			if err != nil {
				return fmt.Errorf("%w (is `make run` running? -first and -second choose other ports)", err)
			}
			_ = l.Close()
		}
	}
	return nil
}
