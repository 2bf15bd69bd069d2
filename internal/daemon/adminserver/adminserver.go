// Package adminserver is the admin address of a process: probes, metrics, profiles,
// and the commands of rebalancer. Every program that has such an address has this one.
package adminserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Readiness tells whether requests can be served. It is safe for concurrent use.
type Readiness struct {
	store    store.Store
	buckets  *listing.Client
	draining atomic.Bool
}

// NewReadiness looks at a store, and at what is in it through a client.
func NewReadiness(s store.Store, b *listing.Client) *Readiness {
	return &Readiness{store: s, buckets: b}
}

// Drain makes the process unready: it is about to end.
func (r *Readiness) Drain() { r.draining.Store(true) }

// readyTimeout bounds a look at the store.
const readyTimeout = 2 * time.Second

// Check fails if the process is ending or its store doesn't answer, or knows that it
// can't be written at present.
func (r *Readiness) Check(ctx context.Context) error {
	if r.draining.Load() {
		return fmt.Errorf("the server is ending")
	}
	if w, ok := r.store.(store.Writable); ok {
		if err := w.Writable(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, err := range r.buckets.Buckets(ctx, "", "") {
		return err
	}
	return nil
}

// Options of a handler. All are required.
type Options struct {
	Registry *prometheus.Registry
	Ready    *Readiness
	Moves    http.Handler
	Access   *Access
	Log      *slog.Logger // told of those who are not let in
}

// New makes the handler of the admin address, which takes in the metrics of Go's
// runtime and of the process. The probes are open to everybody, they tell nothing; the
// rest is for those who have access.
func New(o Options) (http.Handler, error) {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	} {
		if err := o.Registry.Register(c); err != nil {
			return nil, err
		}
	}
	closed := http.NewServeMux()
	closed.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{}))
	closed.Handle("/v1/", o.Access.costly(o.Moves))
	profiles := http.NewServeMux()
	profiles.HandleFunc("GET /debug/pprof/", pprof.Index)
	// Not pprof.Cmdline: flags may hold secrets.
	profiles.HandleFunc("GET /debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Args[0])
	})
	profiles.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	closed.Handle("/debug/pprof/", o.Access.costly(profiles))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := o.Ready.Check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("/", o.Access.protect(closed, o.Log))
	return mux, nil
}

// Resolve looks up an address to listen on, which must be a loopback one unless
// open. Its errors name the flag, and say with the hint what to do.
func Resolve(flag, address string, open bool, hint string) (*net.TCPAddr, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !open && !a.IP.IsLoopback() {
		return nil, fmt.Errorf("%s %s is not a loopback address; %s", flag, address, hint)
	}
	return a, nil
}
