package cassandratest

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that started it
// ends: no node outlives its test, however that ends. A process group of its own
// keeps a terminal's Ctrl-C away from it, so that its owner decides.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// inNewNetwork gives a child a network namespace of its own.
func inNewNetwork() (*syscall.SysProcAttr, error) {
	a := dieWithParent()
	a.Cloneflags = syscall.CLONE_NEWNET
	return a, nil
}
