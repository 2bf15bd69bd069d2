// Package adminserver serves the admin address of a process: probes, metrics, profiles, and the commands of the program
// rebalancer.
package adminserver

import (
	"context"
	"errors"
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

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the parts of a process that its admin Server serves, such as the metrics and the store. All fields except
// Console are required.
type Options struct {
	Access   *Access
	Address  *net.TCPAddr // from Access.Resolve
	Registry *prometheus.Registry
	Store    store.Store
	Buckets  *listing.Client
	Log      *slog.Logger
	// Console answers all requests below /console/. Requests for the console need no token, as its pages hold nothing
	// secret. If Console is nil, the server has no console.
	Console http.Handler
}

// Server serves the admin address of a process: probes, metrics, profiles and commands. The methods of a Server are
// safe for concurrent use.
type Server struct {
	http     http.Server
	listener net.Listener
	o        Options
	draining atomic.Bool
}

const (
	// MostConnections is the largest number of connections that are open at once on an admin address.
	MostConnections = 32
	// readyTimeout is the time limit for the check of the store by the probe /readyz. After that the probe says that
	// the process is not ready.
	readyTimeout = 2 * time.Second
)

// Listen opens the admin address o.Address, and registers metrics of the Go runtime and the process in o.Registry.
// Clients can connect as soon as Listen returns, but get answers only once Serve is called.
func Listen(o Options) (*Server, error) {
	o.Registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(), version.Current().Metric(),
	)
	l, err := net.ListenTCP("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	// There is no WriteTimeout, because the request for a profile says how long the profile takes.
	s := &Server{o: o, http: http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: logging.ErrorLog(o.Log),
	}}
	s.listener = daemon.LimitConns(o.Access.listener(l), MostConnections, &s.http, false)
	return s, nil
}

// URL returns the URL of the admin address, e.g. http://127.0.0.1:9001, with the port on which the server really
// listens.
func (s *Server) URL() string {
	scheme := "http"
	if s.o.Access.cert != nil {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// Serve answers requests until Shutdown or Close is called, and then returns http.ErrServerClosed. The handler commands
// gets the requests below /v1/, except those of /v1/session.
func (s *Server) Serve(commands http.Handler) error {
	s.http.Handler = s.handler(commands)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.o.Access.cert != nil {
		go s.o.Access.cert.Run(ctx, s.o.Log)
	}
	return s.http.Serve(s.listener)
}

// Drain makes the probe /readyz fail from now on. A process that is about to end calls Drain, so that load balancers
// stop sending requests.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown ends the server after the requests under way have ended. If ctx ends earlier, Shutdown cuts off the
// remaining requests and returns an error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.Close()
	return err
}

// Close ends the server at once, and cuts off the requests under way.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.listener.Close() // http.Server knows the listener only while it serves
}

// ready returns nil if the process can serve, for the probe /readyz. It returns an error if
//   - the process is ending,
//   - the store does not answer within 2 s, or
//   - the store refuses writes at present.
func (s *Server) ready(ctx context.Context) error {
	if s.draining.Load() {
		return errors.New("the server is ending")
	}
	if w, ok := s.o.Store.(store.Writable); ok {
		if err := w.Writable(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, err := range s.o.Buckets.Buckets(ctx, "", "") {
		return err
	}
	return nil
}

// handler returns the handler of all requests to the admin address. Every client may use the probes /healthz and
// /readyz, which reveal nothing. All other requests need access. commands answers the requests below /v1/.
func (s *Server) handler(commands http.Handler) http.Handler {
	access := s.o.Access
	slow := &slowdown{places: make(chan struct{}, mostDelayed), log: s.o.Log}
	signedIn := newSessions(access.token, s.listener.Addr(), access.cert != nil)
	closed := http.NewServeMux()
	closed.Handle("GET /metrics", promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{}))
	closed.Handle("/v1/", access.costly(commands))
	profiles := http.NewServeMux()
	profiles.HandleFunc("GET /debug/pprof/", pprof.Index)
	// pprof.Cmdline is replaced, because flags may hold secrets.
	profiles.HandleFunc("GET /debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Args[0])
	})
	profiles.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	closed.Handle("/debug/pprof/", access.costly(profiles))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	known := http.NewServeMux()
	known.HandleFunc("GET /v1/session", access.signIn(slow, signedIn))
	known.HandleFunc("POST /v1/session", access.signIn(slow, signedIn))
	known.HandleFunc("DELETE /v1/session", access.signIn(slow, signedIn))
	if s.o.Console != nil {
		known.Handle("GET /console/", s.o.Console)
		known.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	}
	known.Handle("/", access.protect(closed, slow, signedIn))
	mux.Handle("/", access.known(known, slow))
	return mux
}
