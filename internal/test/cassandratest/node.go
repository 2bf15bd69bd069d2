package cassandratest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// Port is the port on which every node answers CQL.
const Port = 9042

// NodeLocal is Cassandra's consistency level NODE_LOCAL, for which the driver has no name. At NODE_LOCAL a node answers
// from its own data. At ONE, a node may ask another replica.
const NodeLocal gocql.Consistency = 0x0B

// Node is one Cassandra process. The methods are not safe for concurrent use.
type Node struct {
	// Address is the IP address of the node, for clients and other nodes. Clients connect to the port Port.
	Address    string
	DataCentre string

	rack    string
	network *network
	options Options
	ahead   time.Duration // of its wall clock
	joins   bool          // it fetches its rows from other nodes at its first start
	// replaces is the address of a dead node whose part of the ring the node takes at its first start.
	replaces string
	dir      string
	jmxPort  int
	java     string
	lib      string

	process *os.Process
	exited  <-chan struct{} // closed when the process has ended
	started time.Time
}

// Start starts the node, and waits until the node answers CQL. A node that already runs is an error.
func (n *Node) Start(ctx context.Context) error {
	if n.process != nil {
		return fmt.Errorf("the node %s runs already", n.Address)
	}
	port, err := child.FreePort()
	if err != nil {
		return err
	}
	n.jmxPort = port
	out, err := os.OpenFile(filepath.Join(n.dir, "log", "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := n.network.command(context.WithoutCancel(ctx), n.java, n.javaArguments(n.lib)...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = out, out
	if n.ahead != 0 {
		library, err := movedClock(ctx, n.dir)
		if err != nil {
			return err
		}
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, fmt.Sprint("AHEAD_NS=", n.ahead.Nanoseconds()))
	}
	n.started = time.Now()
	exited, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting Cassandra: %w", err)
	}
	n.process, n.exited = cmd.Process, exited
	if err := n.await(ctx); err != nil {
		_ = n.Kill()
		return fmt.Errorf("the node %s did not come up: %w\n%s", n.Address, err, n.Log(40))
	}
	return nil
}

// await waits until the node answers CQL. It returns an error if the process or ctx ends first.
func (n *Node) await(ctx context.Context) error {
	for {
		err := answersCQL(ctx, n.Address)
		if err == nil {
			return nil
		}
		select {
		case <-n.exited:
			return errors.New("the process ended")
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// sees reports whether the node regards another node as up and joined, as UN in the output of nodetool status means.
// nodetool itself would take seconds of processor time. The log of the node says whether the other is up, and the
// node's table of peers says whether it has joined.
func (n *Node) sees(ctx context.Context, other *Node) (bool, error) {
	log, err := os.ReadFile(n.logFile())
	if err != nil {
		return false, err
	}
	since := n.started
	if other.started.After(since) {
		since = other.started
	}
	// The times of a log are those of its node's clock.
	if !saysUp(string(log), net.JoinHostPort(other.Address, "7000"), since.Add(n.ahead)) {
		return false, nil
	}
	c := gocql.NewCluster(n.Address)
	c.ProtoVersion, c.Timeout, c.ConnectTimeout, c.DisableInitialHostLookup = 4, 10*time.Second, 10*time.Second, true
	if n.options.Passwords {
		c.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"}
	}
	s, err := c.CreateSession()
	if err != nil {
		return false, err
	}
	defer s.Close()
	var tokens []string
	err = s.Query("SELECT tokens FROM system.peers_v2 WHERE peer = ? AND peer_port = 7000", other.Address).
		WithContext(ctx).Scan(&tokens)
	if errors.Is(err, gocql.ErrNotFound) {
		err = nil
	}
	return len(tokens) > 0, err
}

// saysUp reports whether the last message about another node in a log, since a given time, says that the node is up.
func saysUp(log, node string, since time.Time) (up bool) {
	for line := range strings.Lines(log) {
		if at, ok := loggedAt(line); ok && !at.Before(since) {
			switch {
			case strings.Contains(line, "InetAddress /"+node+" is now UP"):
				up = true
			case strings.Contains(line, "InetAddress /"+node+" is now DOWN"):
				up = false
			}
		}
	}
	return up
}

// loggedAt returns the time of a line of a node's log. The result is false if the line has no time.
func loggedAt(line string) (time.Time, bool) {
	_, rest, ok := strings.Cut(line, "] ") // after the level and the thread
	const pattern = "2006-01-02 15:04:05,000"
	if !ok || len(rest) < len(pattern) {
		return time.Time{}, false
	}
	at, err := time.ParseInLocation(pattern, rest[:len(pattern)], time.Local)
	// The log knows milliseconds: what it says of the one in which a node was started
	// counts, too.
	return at.Add(time.Millisecond), err == nil
}

// answersCQL returns nil if the node at address answers CQL. It sends the message OPTIONS of the native protocol, which
// needs no login, and expects the answer SUPPORTED.
func answersCQL(ctx context.Context, address string) error {
	const (
		optionsFrame = "\x04\x00\x00\x00\x05\x00\x00\x00\x00"
		supported    = 0x06
	)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(Port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(optionsFrame)); err != nil {
		return err
	}
	header := make([]byte, 9)
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	if header[4] != supported {
		return fmt.Errorf("an answer of opcode %#x", header[4])
	}
	return nil
}

// Stop asks the node to flush its data and end, and waits until the node has ended. If ctx ends first, Stop kills the
// node.
func (n *Node) Stop(ctx context.Context) error {
	if n.process == nil {
		return nil
	}
	if err := n.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.exited:
		n.process = nil
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the node %s did not stop: %w", n.Address, ctx.Err()), n.Kill())
	}
}

// Kill kills the node at once, like kill -9. The data on disk is what a crash leaves. Start may follow.
func (n *Node) Kill() error {
	if n.process == nil {
		return nil
	}
	err := n.process.Kill()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-n.exited
	n.process = nil
	return nil
}

// Pause stops the process without ending it (SIGSTOP). Its connections stay open, but the node does not answer until
// Resume is called.
func (n *Node) Pause() error { return n.process.Signal(syscall.SIGSTOP) }

// Resume ends the effect of Pause.
func (n *Node) Resume() error { return n.process.Signal(syscall.SIGCONT) }

// Running reports whether the node was started, and not stopped or killed since.
func (n *Node) Running() bool { return n.process != nil }

// nodetool returns the arguments for Java to run Cassandra's nodetool against the node, without the command of
// nodetool.
func (n *Node) nodetool() []string {
	return append(moduleArguments(), "-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Duser.home="+n.dir, // where it keeps a history
		"-Djava.io.tmpdir="+filepath.Join(n.dir, "tmp"),
		"-Dcassandra.storagedir="+filepath.Join(n.dir, "data"), "-Dlogback.configurationFile=none",
		"-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
		"-cp", filepath.Join(n.lib, "*"),
		"org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", strconv.Itoa(n.jmxPort))
}

// WriteNodetool writes a script named nodetool into the directory folder, which runs Cassandra's nodetool against the
// node. So tests can run commands as operators write them. The script is valid until the node is started again.
func (n *Node) WriteNodetool(folder string) error {
	line := "exec '" + n.java + "'"
	for _, arg := range n.nodetool() {
		line += " '" + arg + "'"
	}
	return os.WriteFile(filepath.Join(folder, "nodetool"), []byte("#!/bin/sh\n"+line+` "$@"`+"\n"), 0o755)
}

// Data returns the directory of the node's sstables (data_file_directories).
func (n *Node) Data() string { return filepath.Join(n.dir, "data", "data") }

// Nodetool runs Cassandra's nodetool against the node, and returns the output of nodetool.
func (n *Node) Nodetool(ctx context.Context, args ...string) (string, error) {
	out, err := n.network.command(ctx, n.java, append(n.nodetool(), args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("nodetool %v: %w\n%s", args, err, tail(string(out), 10))
	}
	return string(out), nil
}

// Log returns the last lines of the node's log, for messages about failures.
func (n *Node) Log(lines int) string {
	text := ""
	for _, name := range []string{filepath.Join(n.dir, "log", "out"), n.logFile()} {
		b, err := os.ReadFile(name)
		if err != nil {
			text += err.Error() + "\n"
			continue
		}
		text += tail(string(b), lines) + "\n"
	}
	return text
}
