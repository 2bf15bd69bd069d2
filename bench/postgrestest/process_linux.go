package postgrestest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// dieWithParent makes the kernel kill the child when the thread that started it
// ends; its own children notice and end, too. PostgreSQL refuses to run as root, so
// root runs it as an account that may do nothing else. uid and gid are those that
// its files must belong to.
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
