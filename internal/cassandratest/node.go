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
	"syscall"
	"time"
)

// Port is where every node answers CQL.
const Port = 9042

// Node is one Cassandra process. Its methods are not safe for concurrent use.
type Node struct {
	// Address is the node's loopback address; CQL is on Port.
	Address    string
	DataCentre string

	listen  string // where other nodes find it; Address, unless Options.Apart
	network *network
	options Options
	dir     string
	jmxPort int
	java    string
	lib     string

	process *os.Process
	exited  <-chan struct{} // closed when the process has ended
}

// Start starts the node, which must not run, and waits until it answers CQL.
func (n *Node) Start(ctx context.Context) error {
	if n.process != nil {
		return fmt.Errorf("the node %s runs already", n.Address)
	}
	port, err := freePort()
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
	exited, err := StartChild(cmd)
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

// await waits until the node answers CQL.
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

// answersCQL sends the native protocol's OPTIONS, which needs no login, and
// wants to see SUPPORTED.
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

// Stop asks the node to flush and end, and waits for it.
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

// Kill is kill -9. Start may follow; the data is what a crash leaves.
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

// Pause stops the process in its tracks (SIGSTOP): its connections stay open
// and nothing answers. Resume lets it go on.
func (n *Node) Pause() error { return n.process.Signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (n *Node) Resume() error { return n.process.Signal(syscall.SIGCONT) }

// Running reports whether the process lives.
func (n *Node) Running() bool { return n.process != nil }

// Nodetool runs Cassandra's nodetool against the node and returns its output.
func (n *Node) Nodetool(ctx context.Context, args ...string) (string, error) {
	all := append(moduleArguments(), "-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Duser.home="+n.dir, // where it keeps a history
		"-Dcassandra.storagedir="+filepath.Join(n.dir, "data"), "-Dlogback.configurationFile=none",
		"-cp", filepath.Join(n.dir, "conf")+":"+filepath.Join(n.lib, "*"),
		"org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", strconv.Itoa(n.jmxPort))
	all = append(all, args...)
	out, err := n.network.command(ctx, n.java, all...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("nodetool %v: %w\n%s", args, err, tail(string(out), 10))
	}
	return string(out), nil
}

// Log returns the end of the node's log, for messages about failures.
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

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
