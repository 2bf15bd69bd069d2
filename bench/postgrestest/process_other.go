//go:build !linux

package postgrestest

import (
	"os"
	"syscall"
)

// dieWithParent returns no attributes, as only Linux can kill a child process with its parent. uid and gid are those of
// this process.
func dieWithParent() (attr *syscall.SysProcAttr, uid, gid int, err error) {
	return nil, os.Getuid(), os.Getgid(), nil
}
