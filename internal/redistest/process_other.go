//go:build !linux

package redistest

import "syscall"

// dieWithParent: only Linux has a death signal.
func dieWithParent() *syscall.SysProcAttr { return nil }
