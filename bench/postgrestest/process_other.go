//go:build !linux

package postgrestest

import (
	"os"
	"syscall"
)

// dieWithParent: only Linux has a death signal. PostgreSQL refuses to run as root.
func dieWithParent() (attr *syscall.SysProcAttr, uid, gid int, err error) {
	return nil, os.Getuid(), os.Getgid(), nil
}
