package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/rebalance/leader"
	"github.com/evenkeel/evenkeel/rebalance/manager"
	"github.com/evenkeel/evenkeel/rebalance/plain"
	"github.com/evenkeel/evenkeel/store"
)

// rebalanceFlags are those of the rebalancer within serve.
type rebalanceFlags struct {
	MaxRows           int64          `default:"100000" help:"Most rows of a partition: what has more is split."`
	MinRows           *int64         `placeholder:"N" help:"Fewest rows of a partition: what has fewer is merged with its neighbours, unless its cut is pinned. A quarter of --max-rows unless given; 0: nothing is merged."`
	RebalanceInterval *time.Duration `placeholder:"30s" help:"Pause between two looks at the sizes of partitions; 0: none. 30s with the embedded store, which counts what was written to. 0 on Cassandra, where each look counts every row there is."`
	MoveRate          int            `default:"20000" help:"Most rows copied, compared and counted per second, fewer while the store is slow; 0: as many as possible, whoever waits."`
	AdminURL          string         `name:"admin-url" placeholder:"URL" help:"On Cassandra: where other hosts reach the --admin address, to hand commands on to the server that leads the moves. http:// and the address itself unless given."`
}

// Validate refuses limits that make no sense.
func (f *rebalanceFlags) Validate() error {
	switch {
	case f.MaxRows < 2:
		return fmt.Errorf("--max-rows is at least 2, not %d", f.MaxRows)
	case f.MinRows != nil && *f.MinRows < 0:
		return fmt.Errorf("--min-rows is at least 0, not %d", *f.MinRows)
	case f.MinRows != nil && *f.MinRows > f.MaxRows/2:
		return fmt.Errorf("--min-rows is at most half of --max-rows, %d, not %d: else what was just split would be merged again", f.MaxRows/2, *f.MinRows)
	case f.RebalanceInterval != nil && *f.RebalanceInterval < 0:
		return errors.New("--rebalance-interval is a pause, or 0 for no looks at all")
	case f.MoveRate < 0:
		return errors.New("--move-rate is a number of rows, or 0 for as many as possible")
	}
	return nil
}

const presetInterval = 30 * time.Second

// interval is the pause between two looks at sizes; 0: there are none.
func (s *serveCmd) interval() time.Duration {
	switch {
	case s.RebalanceInterval != nil:
		return *s.RebalanceInterval
	case len(s.Cassandra) > 0:
		return 0
	}
	return presetInterval
}

// Merges wait until partitions are so many intervals old.
const mergeAfter = 10

// rebalancer moves ranges, within serve.
type rebalancer struct {
	m         *manager.Manager
	candidate *leader.Candidate // nil: this process has its store for itself
	api       http.Handler
	log       *slog.Logger
}

// newRebalancer makes one. writes knows what was written; nil: nobody does.
func (s *serveCmd) newRebalancer(b *backend, log *slog.Logger, admin net.Addr) *rebalancer {
	o := manager.Options{RowsPerSecond: s.MoveRate, Logger: log}
	if every := s.interval(); every > 0 {
		l := plain.Limits{MaxRows: s.MaxRows, MinRows: s.MaxRows / 4, TargetRows: plain.DefaultTarget(s.MaxRows), MergeAfter: mergeAfter * every}
		if s.MinRows != nil {
			l.MinRows = *s.MinRows
		}
		o.Balance = &manager.Balance{Limits: l, Every: every}
		if b.writes != nil {
			o.Balance.Changes = b.writes
		}
	}
	r := &rebalancer{m: manager.New(b.store, b.buckets.Maps(), o), log: log}
	a := adminapi.Options{Manager: r.m, Store: b.store, Maps: b.buckets.Maps(), Names: b.buckets, Buckets: b.buckets, Rows: b.store, MaxRows: s.MaxRows, Every: s.interval()}
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

// run moves ranges until ctx ends, while this process leads.
func (r *rebalancer) run(ctx context.Context) {
	if r.candidate == nil {
		_ = r.m.Run(ctx) // it ends with ctx
		return
	}
	for ctx.Err() == nil {
		err := r.candidate.Run(ctx, func(ctx context.Context) error {
			r.log.Info("this server leads the moves now")
			return r.m.Run(ctx)
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
