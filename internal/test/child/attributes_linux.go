package child

import "syscall"

// Attributes returns attributes with which the kernel kills a child process when the thread that started the child
// ends. So the child never outlives its owner. The child gets a process group of its own, so that Ctrl-C in a terminal
// reaches only the owner, which decides what happens.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
