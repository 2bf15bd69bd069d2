package child

import "syscall"

// Attributes make the kernel kill a child when the thread that started it ends: it does
// not outlive its owner, however that ends. A process group of its own keeps a terminal's
// Ctrl-C away from it, so that its owner decides.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
