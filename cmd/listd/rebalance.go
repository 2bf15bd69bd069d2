package main

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/evenkeel/evenkeel/internal/daemon/adminapi"
	"github.com/evenkeel/evenkeel/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/rebalance"
)

// rebalanceFlags are those of the rebalancer within serve.
type rebalanceFlags struct {
	rebalanceflags.Flags
	Rebalance string `default:"here" enum:"here,elsewhere" help:"On Cassandra: who moves ranges. here: this server stands by for it; elsewhere: never this one, for instance because rebalancer run does. Where --counter is given, writes are counted all the same."`
	AdminURL  string `name:"admin-url" placeholder:"URL" help:"On Cassandra: where other hosts reach the --admin address, to hand commands on to the server that leads the moves. http:// or https:// and the address itself unless given."`
}

// validate refuses what makes no sense, given whether there is a cluster.
func (f *rebalanceFlags) validate(cassandra bool) error {
	if f.Rebalance == "elsewhere" && !cassandra {
		return errors.New("--rebalance elsewhere: only with --cassandra; nobody else can open the data directory")
	}
	if err := adminapi.CheckURL("--admin-url (EVENKEEL_ADMIN_URL)", f.AdminURL); err != nil {
		return err
	}
	return f.Flags.Validate()
}

// keeper makes what keeps the buckets in shape.
func (s *serveCmd) keeper(b *backend, log *slog.Logger, adminURL string) *rebalance.Rebalancer {
	f, wait := &s.rebalanceFlags.Flags, rebalance.EmbeddedWait
	if len(s.Cassandra) > 0 {
		wait = rebalance.Wait(s.Lease)
	}
	balance := f.Options(b.counts != nil, wait)
	o := rebalance.Options{
		Store: b.store, Buckets: b.buckets, Balance: &balance, Counts: b.counts,
		MoveRate: f.MoveRate, Log: log,
	}
	if len(s.Cassandra) > 0 {
		o.Aside = s.Rebalance == "elsewhere"
		o.Leader = &rebalance.Candidate{Name: rebalance.Name("listd"), Admin: cmp.Or(s.AdminURL, adminURL)}
	}
	return rebalance.New(o)
}
