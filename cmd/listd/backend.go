package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// storeFlags are the command-line flags of the command serve for the embedded store, which keeps all rows in a data
// directory of this process.
type storeFlags struct {
	Data           string        `default:"./evenkeel-data" help:"${store_data=}"`
	CacheMiB       int64         `name:"cache-mib" default:"128" help:"Memory for blocks of the embedded store."`
	TombstoneGrace time.Duration `default:"1h" help:"How long the embedded store remembers deletions, against delayed writes."`
}

// clusterFlags are the command-line flags of the command serve for Cassandra, the store that several servers share.
type clusterFlags struct {
	cassandraflags.Flags
	Lease        time.Duration `default:"3s" help:"${cluster_lease=}"`
	ChangeLease  bool          `help:"${cluster_change_lease=}"`
	Clocks       int           `default:"16" help:"On Cassandra: number of map clocks among which new buckets are spread."`
	MaxClockSkew time.Duration `default:"500ms" help:"${cluster_max_clock_skew=}"`
}

// openTimeout is the time limit for opening a store in Cassandra when the server starts. In this time the server checks
// the schema, and creates the map clocks if none exist. A map clock is a record in the store that tells servers when
// maps of buckets change.
const openTimeout = time.Minute

// open opens the store that the flags choose: Cassandra or a data directory. tables is the largest number of table
// files that a data directory keeps open at once. traces records the calls of the store, and may be nil. The result
// where names the store, as attributes of a log line.
func (s *serveCmd) open(
	ctx context.Context, tables int, traces *tracing.Tracing, log *slog.Logger,
) (db *assembly.DB, where []any, err error) {
	o := assembly.Options{MapCacheBytes: s.MapCacheMiB << 20, Log: log}
	counters := ""
	var st store.Store
	if len(s.Cassandra) > 0 {
		c, err := s.clusterFlags.Options(log)
		if err != nil {
			return nil, nil, daemon.Exit(daemon.ExitUsage, err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
		cluster, err := cassandrastore.Open(ctx, c)
		if err != nil {
			return nil, nil, daemon.Exit(daemon.ExitUnusable, err)
		}
		st = traces.Cassandra(cluster)
		o.ChangeTerms, o.Shared = s.ChangeLease, &mapclient.Options{
			CacheBytes: o.MapCacheBytes, Lease: s.Lease, Clocks: s.Clocks, MaxClockSkew: s.MaxClockSkew,
		}
		o.Counting = s.Counting(s.Rebalance == "elsewhere")
		build := version.Current()
		o.Self = processes.Process{
			Name: engine.Name("listd"), Version: build.Version, Commit: build.Commit, DataCentre: s.LocalDC,
		}
		where = []any{"cassandra", strings.Join(s.Cassandra, ","), "keyspace", s.Keyspace}
	} else {
		secrecy.WarnOfDirectory(log, "--data", s.Data)
		embedded, err := pebblestore.Open(s.Data, pebblestore.Options{
			CacheBytes: s.CacheMiB << 20, TombstoneGrace: s.TombstoneGrace, OpenTables: tables, Logger: log,
		})
		if err != nil {
			return nil, nil, daemon.Exit(daemon.ExitUnusable, err)
		}
		st = traces.Pebble(embedded)
		counters, where = filepath.Join(s.Data, "counters"), []any{"data", s.Data}
	}
	// In a store that processes share, the writes of this process are counted even if it does not check sizes itself.
	if s.RebalanceInterval == nil || *s.RebalanceInterval != 0 || o.Shared != nil {
		o.OpenCounter = func() (counter.Backend, error) { return s.OpenCounter(counters, log) }
	}
	db, err = assembly.Open(ctx, st, o)
	if errors.Is(err, store.InvalidArgument) && o.Shared != nil {
		err = fmt.Errorf("%w (--lease, --max-clock-skew; --counter, --rebalance-interval, --rebalance; --change-lease)", err)
	}
	if err != nil {
		return nil, nil, daemon.Exit(daemon.ExitUnusable, err)
	}
	return db, where, nil
}

// validateStore returns an error if a flag has an invalid value or does not fit the kind of store. Flags of the
// embedded store must not be given together with --cassandra, and flags of Cassandra not without --cassandra.
func (s *serveCmd) validateStore() error {
	if len(s.Cassandra) == 0 {
		if unused := daemon.Changed(&s.clusterFlags); len(unused) > 0 {
			return fmt.Errorf("%s: only with --cassandra, which is not given", strings.Join(unused, ", "))
		}
		return nil
	}
	unused := daemon.Changed(&s.storeFlags)
	switch {
	case len(unused) > 0:
		return fmt.Errorf("%s: only for the embedded store, not with --cassandra", strings.Join(unused, ", "))
	case s.LocalDC == "":
		return errors.New("--local-dc is missing: the data centre of this server, by the name that nodetool status shows")
	case s.Lease < mapclient.MinLease || s.Lease > mapclient.MaxLease:
		return fmt.Errorf("--lease is from %v to %v", mapclient.MinLease, mapclient.MaxLease)
	case s.Clocks < 1 || s.Clocks > mapclient.MaxClocks:
		return fmt.Errorf("--clocks is from 1 to %d", mapclient.MaxClocks)
	case s.MaxClockSkew < commontime.MinLimit:
		return fmt.Errorf("--max-clock-skew is at least %v", commontime.MinLimit)
	}
	return nil
}
