package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/adminapi"
	"github.com/evenkeel/evenkeel/rebalance/assembly"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// adminFlags are the flags for reaching the leader of the moves, or for leading.
type adminFlags struct {
	Servers adminapi.Flags `embed:"" group:"Without --cassandra:"`
	Format  string         `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON    daemon.JSON    `name:"json" env:"-" help:"Short for --format json."`

	cassandraflags.Flags `group:"With --cassandra:"`
	Lease                time.Duration `placeholder:"DURATION" group:"With --cassandra:" help:"${terms_lease=}"`
	// MoveRate is also a flag of listd.
	MoveRate int `default:"20000" group:"With --cassandra:" help:"${admin_move_rate=}"`
}

// wayIn is a client of the process that moves ranges.
type wayIn struct {
	*adminapi.Client
	// direct: this process moves them, so it must wait for their end.
	direct bool
}

// asks runs a command that needs the leader: with --cassandra in this process if no other
// leads, else by requests to the leader.
func (f *adminFlags) asks(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if len(f.Cassandra) == 0 {
		c, err := f.remote()
		if err != nil {
			return err
		}
		return refusal(command(ctx, wayIn{Client: c}))
	}
	return refusal(f.directly(ctx, std, true, command))
}

// reads runs a command that only reads maps.
func (f *adminFlags) reads(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if len(f.Cassandra) == 0 {
		return f.asks(ctx, std, command)
	}
	return refusal(f.directly(ctx, std, false, command))
}

func (f *adminFlags) remote() (*adminapi.Client, error) {
	if changed := f.Changed(); len(changed) > 0 {
		return nil, usageError("%s: only with --cassandra, which is not given", strings.Join(changed, ", "))
	}
	c, err := f.Servers.Client()
	if err != nil {
		return nil, usageError("%w", err)
	}
	return c, nil
}

// print prints an answer: as JSON, or as text if that is the format.
func (f *adminFlags) print(std stdio, answer any, text func(w *failing)) error {
	if f.Format == "json" {
		return daemon.PrintJSON(std.out, answer)
	}
	w := &failing{w: std.out}
	text(w)
	return w.err
}

// refusal gives errors about invalid requests their exit code.
func refusal(err error) error {
	var exit *daemon.ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	switch store.KindOf(err) {
	case store.InvalidArgument, store.NotFound, store.Conflict:
		return daemon.Exit(daemon.ExitRefused, err)
	}
	return err
}

// directly runs a command over a handler in this process.
func (f *adminFlags) directly(ctx context.Context, std stdio, leads bool, command func(ctx context.Context, in wayIn) error) error {
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if f.MoveRate < 0 {
		return usageError("--move-rate is a number of rows per second, or 0 for as many as possible, not %d", f.MoveRate)
	}
	db, err := openKeyspace(ctx, &f.Flags, terms{lease: f.Lease}, nil, log)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	r := rebalance.New(rebalance.Options{
		Store: db.Store, Buckets: db.Client, MoveRate: f.MoveRate, Log: log, Balance: &balancer.Options{},
		Leader: &rebalance.Candidate{Name: rebalance.Name("rebalancer")}, Counting: db.Counting, Presence: db.Presence,
	})
	c, end := adminapi.Within(adminapi.New(r))
	defer end()
	if !leads {
		return command(ctx, wayIn{Client: c})
	}
	err = r.Lead(ctx, func(ctx context.Context) error { return command(ctx, wayIn{Client: c, direct: true}) })
	if held, ok := errors.AsType[*leader.HeldError](err); ok && held.Holder.Admin != "" {
		there, cerr := f.Servers.At(held.Holder.String(), held.Holder.Admin)
		if cerr != nil {
			return cerr
		}
		fmt.Fprintf(std.err, "rebalancer: %s leads: the command is forwarded to %s\n", &held.Holder, held.Holder.Admin)
		return command(ctx, wayIn{Client: there})
	}
	return err
}

// terms are what a command says of the terms of a keyspace.
type terms struct {
	lease, skew time.Duration // 0: those of the keyspace
	dataCentre  string        // of this process, for the list of processes
	// sizes is how this process knows sizes, if it is to lead for long; 0: it takes what there is.
	sizes mapclient.Counting
	// used: a keyspace on which no server was ever started is refused.
	used bool
	// damaged: what can't be read of the keyspace's terms is as it is said here.
	damaged bool
}

// checkLease refuses a lease that no keyspace has.
func checkLease(lease time.Duration) error {
	if lease != 0 && (lease < mapclient.MinLease || lease > mapclient.MaxLease) {
		return fmt.Errorf("--lease is from %v to %v", mapclient.MinLease, mapclient.MaxLease)
	}
	return nil
}

// openKeyspace opens a keyspace, with its terms.
func openKeyspace(
	ctx context.Context, f *cassandraflags.Flags, t terms, traces *tracing.Tracing, log *slog.Logger,
) (*assembly.DB, error) {
	o, err := f.Options(log)
	if err != nil {
		return nil, usageError("%w", err)
	}
	if f.LocalDC == "" {
		return nil, usageError("--local-dc is missing: the data centre of this process, as nodetool status shows it")
	}
	if err := checkLease(t.lease); err != nil {
		return nil, usageError("%w", err)
	}
	st, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return nil, daemon.Exit(daemon.ExitUnusable, err)
	}
	t.dataCentre = f.LocalDC
	db, err := openShared(ctx, traces.Cassandra(st), t, log)
	if err != nil {
		return nil, daemon.Exit(daemon.ExitUnusable, err)
	}
	return db, nil
}

// openShared opens a store that servers use, with their terms. With a longer lease this process would acknowledge rows
// that have moved away; with a shorter one, or a smaller limit for the skew of clocks, it would remove what is still in
// use.
func openShared(ctx context.Context, s store.Store, t terms, log *slog.Logger) (*assembly.DB, error) {
	clocks, err := countClocks(ctx, s)
	if err == nil && clocks == 0 && t.used {
		err = errors.New("the keyspace has no map clocks: no server was ever started on it, or they are lost")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	build := version.Current()
	db, err := assembly.Open(ctx, s, assembly.Options{
		Self: processes.Process{
			Name: rebalance.Name("rebalancer"), Version: build.Version, Commit: build.Commit, DataCentre: t.dataCentre,
		},
		Shared:  &mapclient.Options{Lease: t.lease, MaxClockSkew: t.skew, Clocks: clocks},
		Damaged: t.damaged, Counting: t.sizes, Log: log,
	})
	if errors.Is(err, store.InvalidArgument) {
		err = fmt.Errorf("%w (without --lease this command takes the keyspace's; rebalancer run: --counter, "+
			"--rebalance-interval)", err)
	}
	return db, err
}

// countClocks returns the number of map clocks of a keyspace, which is --clocks of its servers.
func countClocks(ctx context.Context, s store.Registers) (n int, err error) {
	for keys, err := range store.KeyPages(ctx, s, store.Clocks) {
		if err != nil {
			return 0, err
		}
		n += len(keys)
	}
	return min(n, mapclient.MaxClocks), nil
}
