//go:build !linux

package child

import "syscall"

// Attributes are none: only Linux has a death signal.
func Attributes() *syscall.SysProcAttr { return nil }
