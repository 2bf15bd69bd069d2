//go:build !linux

package child

import "syscall"

// Attributes returns nil, as only Linux can kill a child process with its parent.
func Attributes() *syscall.SysProcAttr { return nil }
