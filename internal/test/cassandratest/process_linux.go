package cassandratest

import (
	"syscall"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// inNewNetwork gives a child a network namespace of its own.
func inNewNetwork() (*syscall.SysProcAttr, error) {
	a := child.Attributes()
	a.Cloneflags = syscall.CLONE_NEWNET
	return a, nil
}
