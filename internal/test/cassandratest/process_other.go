//go:build !linux

package cassandratest

import "syscall"

// inNewNetwork: only Linux has network namespaces.
func inNewNetwork() (*syscall.SysProcAttr, error) { return nil, ErrNoNetworks }
