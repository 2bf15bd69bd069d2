package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// storeFlags are those of the embedded store.
type storeFlags struct {
	Data           string        `default:"./evenkeel-data" help:"Directory of the embedded store, which holds everything; made if it isn't there."`
	CacheMiB       int64         `name:"cache-mib" default:"128" help:"Memory for blocks of the embedded store."`
	TombstoneGrace time.Duration `default:"1h" help:"How long the embedded store remembers deletions, against writes that were delayed."`
}

// clusterFlags are those of a shared store.
type clusterFlags struct {
	cassandraflags.Flags
	Lease        time.Duration `default:"3s" help:"On Cassandra: how long a server may act on a map without asking again. All servers and rebalancers of a keyspace need the same: the first one writes it down, another one is refused."`
	ChangeLease  bool          `help:"On Cassandra: write --lease and --max-clock-skew down as those of the keyspace. Only while no other server and no rebalancer runs on it."`
	Clocks       int           `default:"16" help:"On Cassandra: number of map clocks among which new buckets are spread."`
	MaxClockSkew time.Duration `default:"500ms" help:"On Cassandra: how exactly the common time of the nodes has to be known for a write; each write takes at least as long as it is inexact, and beyond this limit writes are refused while reads go on. Also how far the clocks of data centres that can't be compared are assumed to be apart. All servers of a keyspace need the same, as of --lease."`
}

// openTimeout bounds the start on Cassandra: the check of the schema, and the making of map
// clocks where there are none.
const openTimeout = time.Minute

// open opens the store that the flags choose; an embedded one keeps so many tables open.
// where are the attributes of the log line that names the store.
func (s *serveCmd) open(ctx context.Context, tables int, log *slog.Logger) (db *assembly.DB, where []any, err error) {
	o := assembly.Options{MapCacheBytes: s.MapCacheMiB << 20, Log: log}
	counters := ""
	var st store.Store
	if len(s.Cassandra) > 0 {
		c, err := s.clusterFlags.Options(log)
		if err != nil {
			return nil, nil, daemon.Exit(exitUsage, err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if st, err = cassandrastore.Open(ctx, c); err != nil {
			return nil, nil, daemon.Exit(exitStore, err)
		}
		o.ChangeTerms, o.Shared = s.ChangeLease, &mapclient.Options{
			CacheBytes: o.MapCacheBytes, Lease: s.Lease, Clocks: s.Clocks, MaxClockSkew: s.MaxClockSkew,
		}
		where = []any{"cassandra", strings.Join(s.Cassandra, ","), "keyspace", s.Keyspace}
	} else {
		secrecy.WarnOfDirectory(log, "--data", s.Data)
		st, err = pebblestore.Open(s.Data, pebblestore.Options{
			CacheBytes: s.CacheMiB << 20, TombstoneGrace: s.TombstoneGrace, OpenTables: tables, Logger: log,
		})
		if err != nil {
			return nil, nil, daemon.Exit(exitStore, err)
		}
		counters, where = filepath.Join(s.Data, "counters"), []any{"data", s.Data}
	}
	if s.RebalanceInterval == nil || *s.RebalanceInterval != 0 {
		o.OpenCounter = func() (counter.Backend, error) { return s.OpenCounter(counters, log) }
	}
	db, err = assembly.Open(ctx, st, o)
	if errors.Is(err, store.InvalidArgument) && o.Shared != nil {
		err = fmt.Errorf("%w (--lease, --max-clock-skew; --change-lease)", err)
	}
	if err != nil {
		return nil, nil, daemon.Exit(exitStore, err)
	}
	return db, where, nil
}

// validateStore refuses flags of one form of the store where the other one is used.
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
