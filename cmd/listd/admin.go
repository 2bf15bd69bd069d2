package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/internal/adminserver"
)

// readiness tells whether requests can be served.
type readiness struct{ *adminserver.Readiness }

func newReadiness(b *backend) *readiness {
	return &readiness{adminserver.NewReadiness(b.store, b.buckets)}
}

// drain makes the server unready: it is about to end.
func (r *readiness) drain() { r.Drain() }

// newAdmin makes the handler of the admin address.
func newAdmin(registry *prometheus.Registry, ready *readiness, moves http.Handler, token string) (http.Handler, error) {
	return adminserver.New(registry, ready.Readiness, moves, token)
}
