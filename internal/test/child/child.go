// Package child starts the processes that tests and trials need, so that no process outlives the one that started it.
package child

import (
	"net"
	"os/exec"
	"runtime"
)

// Start starts a command whose process dies with this process. On Linux this is so even if this process is killed. If
// cmd.SysProcAttr is set, it must include the Attributes. The channel exited is closed when the command has ended, and
// cmd.ProcessState is then set.
func Start(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = Attributes()
	}
	ended, started := make(chan struct{}), make(chan error)
	go func() {
		// The death signal is tied to the thread that forked: it has to live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in ProcessState, or in its log
		}
		close(ended)
	}()
	return ended, <-started
}

// FreePort returns a port of 127.0.0.1 on which no process listens. Another process may take the port at any time.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
