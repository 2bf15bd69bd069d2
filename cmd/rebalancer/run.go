package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/console"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// runCmd is the command that runs the daemon, which splits, merges and moves the ranges of buckets as their sizes
// change.
type runCmd struct {
	Cluster cassandraflags.Flags `embed:"" group:"Cassandra:"`
	Lease   time.Duration        `placeholder:"DURATION" group:"Cassandra:" help:"${terms_lease=}"`
	Sizes   rebalanceflags.Flags `embed:"" group:"Sizes and moves:"`

	AdminListen string            `group:"Admin address:" default:"127.0.0.1:9002" placeholder:"ADDR" help:"${run_admin_listen=}"`
	AdminAccess adminserver.Flags `embed:"" group:"Admin address:"`

	AdminURL string `name:"admin-url" env:"EVENKEEL_RUN_ADMIN_URL" group:"Admin address:" placeholder:"URL" help:"${run_admin_url=}"`

	Log logging.Flags `embed:"" group:"Log:"`
}

// Help returns the detailed help text of the command run, which --help prints.
func (*runCmd) Help() string {
	return `Checks the sizes of partitions at an interval or at times of the day, splits large ones,
merges small ones, cuts ahead of appends, and carries out requests of other commands while
clients work.

The servers count sizes in the Redis of --counter: give listd the same. Without it every
check reads every row. Any number of these processes may run, and listd stands by as well
without --rebalance elsewhere: one leads, and another one takes over when it ends or dies.
Prints its admin address once it stands by, and logs to stderr. SIGTERM or SIGINT ends it;
the next leader completes moves that have begun.

Examples:

    rebalancer run --cassandra 10.0.0.1,10.0.0.2 --local-dc dc1 --counter redis://10.0.0.9:6379/0
    rebalancer run --cassandra 10.0.0.1 --local-dc dc1 --counter redis://10.0.0.9/0 --schedule '*/10 * * * *'
    rebalancer status --admin http://127.0.0.1:9002

Exit codes: 0 ended by a signal; 1 failed (the address is taken); 2 bad flags; 3 the keyspace
can't be used.`
}

// Validate returns an error if a flag of the command run has an invalid value. The command-line parser kong calls
// Validate before anything is opened.
func (c *runCmd) Validate() error {
	if len(c.Cluster.Cassandra) == 0 {
		return errors.New("--cassandra is missing: name nodes of the cluster. The embedded store is kept in shape by the listd that has it open")
	}
	if c.Sizes.Counter == "" && c.Sizes.RebalanceInterval == nil && c.Sizes.Schedule == "" {
		return errors.New("--counter is missing: the Redis in which the servers count sizes. " +
			"To read every row at each look instead give --rebalance-interval or --schedule")
	}
	if err := adminapi.CheckURL("--admin-url (EVENKEEL_RUN_ADMIN_URL)", c.AdminURL); err != nil {
		return err
	}
	return c.Sizes.Validate()
}

// openTimeout is the time limit for opening a keyspace when the program starts, which includes a check of the schema.
const openTimeout = time.Minute

// Run runs the daemon until a signal comes. The daemon becomes the leader, which moves ranges, whenever no other
// process is the leader.
func (c *runCmd) Run(ctx context.Context, outer *cli, std stdio) error {
	log, lines := c.Log.Logger(std.err)
	defer lines.Report()
	log.Info("rebalancer starts", version.Current().Attrs()...)
	secrecy.WarnOfSettings(log, string(outer.Config))
	who, err := c.AdminAccess.Open(log)
	if err != nil {
		return usageError("%w", err)
	}
	address, err := who.Resolve("--admin-listen", c.AdminListen, log)
	if err != nil {
		return usageError("%w", err)
	}
	traces, err := tracing.Open(ctx, "rebalancer", log)
	if err != nil {
		return usageError("%w", err)
	}
	defer traces.End()
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	db, err := openKeyspace(opening, &c.Cluster, terms{lease: c.Lease, sizes: c.Sizes.Counting(false)}, traces, log)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	counts, err := c.Sizes.OpenCounter("", log)
	if err != nil {
		return usageError("--counter: %w", err)
	}
	if counts != nil {
		defer func() { _ = counts.Close() }()
	}
	d := runner{
		store: db.Store, names: db.Client, counts: counts, counting: db.Counting, presence: db.Presence, wait: db.Wait(),
		who: who, log: log, lines: lines, traces: traces, out: std,
	}
	return d.run(ctx, c, address)
}

// runner is the daemon of the command run, with the store that the daemon has opened. A runner moves ranges while its
// process is the leader.
type runner struct {
	store    store.Store
	names    *listing.Client
	counts   counter.Backend // nil: sizes are not counted
	counting mapclient.Counting
	presence *processes.Presence // nil in tests of this package
	wait     time.Duration       // the longest wait of a move
	leader   engine.Candidate
	who      *adminserver.Access
	log      *slog.Logger
	lines    *logging.Limit
	traces   *tracing.Tracing // nil: requests are not traced
	out      stdio
}

// endTimeout is the time that requests to the admin address may still take when the program ends. After endTimeout the
// remaining requests are cut off.
const endTimeout = 5 * time.Second

// run serves the admin address until ctx ends, and moves ranges whenever this process is the leader. run returns after
// all moves in this process have stopped. address is the admin address to listen on.
func (d *runner) run(ctx context.Context, c *runCmd, address *net.TCPAddr) error {
	registry := prometheus.NewRegistry()
	admin, err := adminserver.Listen(adminserver.Options{
		Access: d.who, Address: address, Registry: registry, Store: d.store, Buckets: d.names, Log: d.log,
		Console: console.Handler(),
	})
	if err != nil {
		return fmt.Errorf("--admin-listen: %w", err)
	}
	defer admin.Close()
	d.leader.Name = cmp.Or(d.leader.Name, engine.Name("rebalancer"))
	d.leader.Admin = cmp.Or(c.AdminURL, admin.URL())
	build := version.Current()
	balance := c.Sizes.Options(d.counts != nil, d.wait)
	k := engine.New(engine.Options{
		Store: d.store, Buckets: d.names, Balance: &balance, Counts: d.counts, Counting: d.counting,
		Presence: d.presence,
		MoveRate: c.Sizes.MoveRate, HistoryFile: c.Sizes.History, Version: build.Version, Commit: build.Commit,
		Leader: &d.leader, Retention: c.Sizes.Rules(), RetentionEvery: c.Sizes.RetentionEvery, Log: d.log,
	})
	registry.MustRegister(d.lines.Metric(), engine.Metrics{Rebalancer: k})
	if cluster, ok := d.store.(interface{ Metrics() prometheus.Collector }); ok {
		registry.MustRegister(cluster.Metrics())
	}
	failed := make(chan error, 2)
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { failed <- admin.Serve(d.traces.Requests(adminapi.New(k))) })
	work.Go(func() {
		if err := k.Run(working); err != nil {
			failed <- err
		}
	})
	if cluster, ok := d.store.(interface{ WatchRepairs(context.Context) }); ok {
		work.Go(func() { cluster.WatchRepairs(working) })
	}
	// The store is closed only when nothing moves.
	defer work.Wait()
	defer admin.Close()
	defer stop()
	fmt.Fprintf(d.out.out, "admin on %s\n", admin.URL())
	d.log.Info("standing by", "admin", admin.URL(), "counter", d.counts != nil)

	daemon.Notify(d.log, daemon.Ready)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	admin.Drain()
	daemon.Notify(d.log, daemon.Stopping)
	d.log.Info("ending")
	stop() // another process may lead at once
	ending, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = admin.Shutdown(ending) // requests that take longer are cut off
	return nil
}
