//go:build !linux

package cassandratest

import "syscall"

// dieWithParent: only Linux has a death signal.
func dieWithParent() *syscall.SysProcAttr { return nil }
