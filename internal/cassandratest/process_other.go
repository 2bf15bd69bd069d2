//go:build !linux

package cassandratest

import "syscall"

// dieWithParent: only Linux has a death signal.
func dieWithParent() *syscall.SysProcAttr { return nil }

// inNewNetwork: only Linux has network namespaces.
func inNewNetwork() (*syscall.SysProcAttr, error) { return nil, ErrNoNetworks }
