package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// network is a network namespace with nothing but loopback: programs in it have their default ports.
type network struct{ file *os.File }

// newNetwork needs root, else it skips the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make network namespaces")
	}
	made := make(chan error)
	n := &network{}
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		made <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("a new network namespace: %w", err)
			}
			if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
				return fmt.Errorf("ip link set lo up: %w: %s", err, out)
			}
			var err error
			n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
			return err
		}()
	}()
	require.NoError(t, <-made)
	t.Cleanup(func() { _ = n.file.Close() })
	return n
}

// do calls f on a thread in the namespace.
func (n *network) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// start starts a command in the namespace, which is killed at the end of the test, and when the tests die. The channel
// is closed when it has ended.
func (n *network) start(t *testing.T, cmd *exec.Cmd) (exited <-chan struct{}) {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error), make(chan struct{})
	go func() {
		_ = n.do(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait() // the signal of death is tied to this thread
			}
			close(ended)
			return nil
		})
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return ended
}

// output runs a command in the namespace, and returns what it prints.
func (n *network) output(cmd *exec.Cmd) (out string, err error) {
	err = n.do(func() error {
		text, err := cmd.CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

// dial connects to an address in the namespace.
func (n *network) dial(ctx context.Context, kind, address string) (conn net.Conn, err error) {
	err = n.do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, kind, address)
		return err
	})
	return conn, err
}
