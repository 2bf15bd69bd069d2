package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalanceflags"
	"github.com/evenkeel/evenkeel/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance/leader"
	"github.com/evenkeel/evenkeel/rebalance/manager"
	"github.com/evenkeel/evenkeel/store"
)

// rebalanceFlags are those of the rebalancer within serve.
type rebalanceFlags struct {
	rebalanceflags.Flags
	AdminURL string `name:"admin-url" placeholder:"URL" help:"On Cassandra: where other hosts reach the --admin address, to hand commands on to the server that leads the moves. http:// and the address itself unless given."`
}

// rebalancer moves ranges, within serve.
type rebalancer struct {
	m         *manager.Manager
	sizes     *balancer.Balancer // nil: nobody looks after them
	candidate *leader.Candidate  // nil: this process has its store for itself
	api       http.Handler
	log       *slog.Logger
}

// newRebalancer makes one.
func (s *serveCmd) newRebalancer(b *backend, log *slog.Logger, admin net.Addr) *rebalancer {
	maps := b.buckets.Maps()
	r := &rebalancer{m: manager.New(b.store, maps, manager.Options{RowsPerSecond: s.MoveRate, Logger: log}), log: log}
	every := s.Interval(b.counts != nil)
	if every > 0 {
		wait := embeddedWait
		if len(s.Cassandra) > 0 {
			wait = s.Lease + s.Lease/10
		}
		o := s.rebalanceFlags.Options(every, wait, log)
		counts := b.counts
		if o.Exact = counts == nil; o.Exact {
			counts = counter.NewMemory(nil)
		}
		r.sizes = balancer.New(b.store, maps, r.m, counts, o)
	}
	a := adminapi.Options{Manager: r.m, Balancer: r.sizes, Store: b.store, Maps: maps, Names: b.buckets, Buckets: b.buckets, Rows: b.store, MaxRows: s.MaxRows, Every: every}
	if len(s.Cassandra) > 0 {
		lo := leader.Options{Name: serverName(), Admin: s.AdminURL}
		if admin != nil && lo.Admin == "" {
			lo.Admin = "http://" + admin.String()
		}
		r.candidate = leader.New(b.store, lo)
		a.Leader = func(ctx context.Context) (leader.Holder, bool, bool) {
			if h, mine := r.candidate.Leading(); mine {
				return h, true, true
			}
			h, err := leader.Current(ctx, b.store)
			return h, err == nil, false
		}
	}
	r.api = adminapi.New(a)
	return r
}

// embeddedWait is what a wait takes at most where the one process leads: for writes
// under way.
const embeddedWait = time.Second

// lead moves ranges until ctx ends.
func (r *rebalancer) lead(ctx context.Context) error {
	var sizes sync.WaitGroup
	if r.sizes != nil {
		sizes.Go(func() { _ = r.sizes.Run(ctx) }) // it ends with ctx
	}
	defer sizes.Wait()
	return r.m.Run(ctx)
}

// run moves ranges until ctx ends, while this process leads.
func (r *rebalancer) run(ctx context.Context) {
	if r.candidate == nil {
		_ = r.lead(ctx)
		return
	}
	for ctx.Err() == nil {
		err := r.candidate.Run(ctx, func(ctx context.Context) error {
			r.log.Info("this server leads the moves now")
			return r.lead(ctx)
		}, func(err error) {
			var held *leader.HeldError
			if errors.As(err, &held) {
				r.log.Info("another server leads the moves", "leader", held.Holder.String(), "admin", held.Holder.Admin)
				return
			}
			r.log.Warn("this server does not lead the moves", "error", err)
		})
		if ctx.Err() == nil && store.KindOf(err) == store.Corrupt {
			r.log.Error("nothing is moved by this server", "error", err)
			return
		}
	}
}

func serverName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("listd on %s, process %d", host, os.Getpid())
}
