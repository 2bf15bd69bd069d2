package main

import (
	"github.com/evenkeel/evenkeel/internal/daemon/adminserver"
)

// readiness tells whether requests can be served.
type readiness struct{ *adminserver.Readiness }

func newReadiness(b *backend) *readiness {
	return &readiness{adminserver.NewReadiness(b.store, b.buckets)}
}

// drain makes the server unready: it is about to end.
func (r *readiness) drain() { r.Drain() }
