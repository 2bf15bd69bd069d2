package cassandratest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartChild starts a command that dies with this process, also when that is
// killed (Linux). The channel is closed when it has ended; cmd.ProcessState is
// set then.
func StartChild(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	return startChild(cmd, dieWithParent())
}

func startChild(cmd *exec.Cmd, attributes *syscall.SysProcAttr) (exited <-chan struct{}, err error) {
	cmd.SysProcAttr = attributes
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
