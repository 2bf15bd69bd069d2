//go:build !linux

package cassandratest

import "syscall"

// Only Linux has network namespaces, and links between them.

const far = ""

func inNewNetwork() (*syscall.SysProcAttr, error) { return nil, ErrNoNetworks }
func (n *network) within(func() error) error      { return ErrNoNetworks }
func newLink([]*network) (*Link, error)           { return nil, ErrNoNetworks }

// Close does nothing, as links exist only on Linux.
func (l *Link) Close() {}
