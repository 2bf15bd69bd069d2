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
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// adminFlags are the command-line flags of commands that need the leader, the process that carries out splits, merges
// and moves of ranges. A command sends requests to the leader. With --cassandra the command's own process can be the
// leader.
type adminFlags struct {
	Servers adminapi.Flags `embed:"" group:"Without --cassandra:"`
	Format  string         `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON    daemon.JSON    `name:"json" env:"-" help:"Short for --format json."`

	cassandraflags.Flags `group:"With --cassandra:"`
	Lease                time.Duration `placeholder:"DURATION" group:"With --cassandra:" help:"${terms_lease=}"`
	// MoveRate is the largest number of rows per second that moves of ranges copy and compare. The server listd has the
	// same flag.
	MoveRate int `default:"20000" group:"With --cassandra:" help:"${admin_move_rate=}"`
}

// wayIn is the client by which a command sends its requests. The requests go to another process or to a handler in this
// process.
type wayIn struct {
	*adminapi.Client
	// direct is true if this process carries out the moves of ranges itself, so that the command must wait for their
	// end.
	direct bool
}

// asks runs a command that needs the leader, the process that carries out moves of ranges. The argument command is a
// function that gets a client for its requests. The client sends the requests
//   - without --cassandra, to the server of --admin;
//   - with --cassandra, to the leader of the keyspace, which is this process if no other process is the leader.
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

// reads runs a command that only reads maps of buckets, and so needs no leader to carry out moves. With --cassandra
// this process reads the keyspace itself. Without --cassandra the command's requests go to the server of --admin.
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

// print prints the answer to a command in the format of --format: as JSON, or as the text that the function text
// writes.
func (f *adminFlags) print(std stdio, answer any, text func(w *failing)) error {
	if f.Format == "json" {
		return daemon.PrintJSON(std.out, answer)
	}
	w := &failing{w: std.out}
	text(w)
	return w.err
}

// refusal returns err with the exit code ExitRefused if err is about an invalid request: a bad argument, a missing
// thing or a conflict. Other errors, and errors with an exit code, are returned unchanged.
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

// directly opens the keyspace of --cassandra, and runs a command with a client for its requests, which this process
// handles. If leads is true, this process first becomes the leader, which carries out moves of ranges. If another
// process is the leader, the requests go to that process instead.
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
	r := engine.New(engine.Options{
		Store: db.Store, Buckets: db.Client, MoveRate: f.MoveRate, Log: log, Balance: &balancer.Options{},
		Leader: &engine.Candidate{Name: engine.Name("rebalancer")}, Counting: db.Counting, Presence: db.Presence,
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

// terms are a command's own values of the settings that all processes of a keyspace must share, such as the length of
// leases. A zero value stands for the keyspace's value. A value that differs from the keyspace's is an error.
type terms struct {
	lease, skew time.Duration // 0: the value of the keyspace
	dataCentre  string        // data centre of this process, for the list of processes
	// sizes is the way in which this process knows sizes of partitions, for the daemon of the command run. The zero
	// value is the keyspace's way.
	sizes mapclient.Counting
	// used is true if a keyspace on which no server was ever started is an error.
	used bool
	// damaged is true if the settings here replace settings of the keyspace that cannot be read.
	damaged bool
}

// checkLease returns an error if lease, a length of leases, is outside the limits for all keyspaces. The length 0 is
// valid, and stands for the keyspace's own length.
func checkLease(lease time.Duration) error {
	if lease != 0 && (lease < mapclient.MinLease || lease > mapclient.MaxLease) {
		return fmt.Errorf("--lease is from %v to %v", mapclient.MinLease, mapclient.MaxLease)
	}
	return nil
}

// openKeyspace opens evenkeel's keyspace in Cassandra. The terms t are the command's values of settings that all
// processes of the keyspace must share. traces records the calls of the store, and may be nil. Errors have exit codes.
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

// openShared opens a store that several processes use, with the settings that all these processes share. t may give
// some of the settings, which must then be equal to the keyspace's. Different settings would do damage:
//   - With a longer lease, this process would acknowledge writes of rows that have moved away.
//   - With a shorter lease, or a smaller limit for the skew of clocks, this process would remove rows that are still in
//     use.
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
			Name: engine.Name("rebalancer"), Version: build.Version, Commit: build.Commit, DataCentre: t.dataCentre,
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

// countClocks returns the number of map clocks in a keyspace. A map clock is a record that tells processes when maps of
// buckets change. The number is that of --clocks when the first server started. The result is 0 if no server was ever
// started.
func countClocks(ctx context.Context, s store.Registers) (n int, err error) {
	for keys, err := range record.KeyPages(ctx, s, store.Clocks) {
		if err != nil {
			return 0, err
		}
		n += len(keys)
	}
	return min(n, mapclient.MaxClocks), nil
}
