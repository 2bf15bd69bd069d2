package postgrestest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// dieWithParent returns attributes with which the kernel kills the child process when the thread that started the child
// ends. The child's own children notice that and end, too. PostgreSQL refuses to run as root, so for root the
// attributes name the account postgres or nobody. uid and gid are the owner that the server's files must have.
func dieWithParent() (attr *syscall.SysProcAttr, uid, gid int, err error) {
	attr = child.Attributes()
	if os.Getuid() != 0 {
		return attr, os.Getuid(), os.Getgid(), nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		if uid, err = strconv.Atoi(u.Uid); err != nil {
			return nil, 0, 0, err
		}
		if gid, err = strconv.Atoi(u.Gid); err != nil {
			return nil, 0, 0, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return attr, uid, gid, nil
	}
	return nil, 0, 0, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
