package cassandratest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// inNewNetwork returns attributes that start a child process in a new network namespace.
func inNewNetwork() (*syscall.SysProcAttr, error) {
	a := child.Attributes()
	a.Cloneflags = syscall.CLONE_NEWNET
	return a, nil
}

// within calls f on a thread inside the network. Sockets and devices that f opens stay in the network, even if other
// threads use them.
func (n *network) within(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			ns, err := os.Open(n.path())
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the network %s: %w", n.path(), err)
			}
			return f()
		}()
	}()
	return <-done
}
