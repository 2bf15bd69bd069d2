// Package evenkeel keeps sorted listings of any size, in a directory or in Apache
// Cassandra, and keeps their partitions in shape while they are used. It is what a
// program embeds: one handle with everything that package listing offers, which counts
// what is written, splits and merges ranges by itself, and is closed once.
//
// The parts can be used by themselves, too: listing (the client), partmap/mapclient
// (maps and leases), store/... (stores), counter (sizes), rebalance/... (moves).
package evenkeel

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/assembly"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// DB is an open store with a client over it. Its methods, those of the client, are safe
// for concurrent use.
type DB struct {
	*listing.Client
	all *assembly.DB
}

// Options of a DB; the zero value is good.
type Options struct {
	// MaxRows is the most rows of a partition: what has more is split. Default 100,000.
	MaxRows int64
	// Retention are rules by which old entries are deleted, once an hour, by the process that moves ranges. Over
	// Cassandra give all processes the same.
	Retention []retention.Rule
	// Unbalanced: this process neither moves ranges nor counts what it writes (but for
	// Cassandra.Counter). What nobody keeps in shape gets as slow as one large partition.
	Unbalanced bool
	// Log is told what begins, ends and fails; nil: nothing is logged.
	Log *slog.Logger
}

// moveRate is how many rows are copied and compared per second.
const moveRate = 20_000

// Open opens the store in a directory, which is made if there is none. It belongs to one
// process at a time. The error is Unavailable where another one has it open or the disk
// does not work, and InvalidArgument where a newer version wrote it.
func Open(dir string, o Options) (*DB, error) {
	st, err := pebblestore.Open(dir, pebblestore.Options{Logger: o.Log})
	if err != nil {
		return nil, err
	}
	a := assembly.Options{Log: o.Log}
	if !o.Unbalanced {
		a.OpenCounter = func() (counter.Backend, error) {
			return localcounter.Open(filepath.Join(dir, "counters"), localcounter.Options{Logger: o.Log})
		}
	}
	return open(context.Background(), st, a, &o, nil)
}

// Cassandra says which keyspace to use and how. Hosts and DataCentre are required, and
// Counter unless Unbalanced is set. The keyspace is laid out by `rebalancer schema apply`.
type Cassandra struct {
	Options
	// Hosts are addresses to begin with, "host" or "host:port"; the others are found.
	Hosts []string
	// DataCentre is the local one, by the name that nodetool status shows.
	DataCentre string
	// Keyspace is "evenkeel" if empty.
	Keyspace string
	// Counter is the Redis in which all processes of the keyspace count sizes, such as
	// redis://host:6379/0; rediss:// for TLS. See rediscounter.ParseURL for a cluster and for
	// sentinels. That sizes are counted in Redis is agreed on with the keyspace: where they
	// are, a process without Counter is refused.
	Counter string
	// Store has what else there is to say about the cluster; what is above counts.
	Store cassandrastore.Options
	// Lease is how long a process may use what it knows of a map. It must be that of the
	// keyspace, which is the default; the first process of a keyspace decides it, by default
	// 3 s.
	Lease time.Duration
}

// OpenCassandra opens a keyspace. Every process of it may do so; they elect one that
// moves ranges. It fails with InvalidArgument where c is incomplete or contradicts what
// the keyspace has agreed on, and with Unavailable where the cluster can't be reached.
func OpenCassandra(ctx context.Context, c Cassandra) (*DB, error) {
	if c.Counter == "" && !c.Unbalanced {
		return nil, store.Errorf(store.InvalidArgument, "Counter is missing: the Redis in which all processes of the "+
			"keyspace count sizes, like redis://host:6379/0; or set Unbalanced, and this process looks after nothing")
	}
	o := c.Store
	o.Hosts, o.DataCentre, o.Keyspace, o.Log = c.Hosts, c.DataCentre, cmp.Or(c.Keyspace, "evenkeel"), c.Log
	st, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	a := assembly.Options{Shared: &mapclient.Options{Lease: c.Lease}, Log: c.Log}
	a.Self = processes.Process{Name: rebalance.Name("evenkeel"), Version: moduleVersion(), DataCentre: c.DataCentre}
	a.Counting = mapclient.Elsewhere
	if c.Counter != "" {
		a.Counting = mapclient.InRedis
		a.OpenCounter = func() (counter.Backend, error) {
			redis, err := rediscounter.ParseURL(c.Counter)
			if err != nil {
				return nil, store.Errorf(store.InvalidArgument, "Counter: %w", err)
			}
			return rediscounter.Open(redis)
		}
	}
	return open(ctx, st, a, &c.Options, &rebalance.Candidate{Name: rebalance.Name("evenkeel")})
}

// moduleVersion returns the version of this module in the program that embeds it; empty: it is not known.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/evenkeel/evenkeel" {
			return m.Version
		}
	}
	return ""
}

// open makes a DB over a store, and keeps its buckets in shape unless o.Unbalanced is set.
// elect: processes elect the one that moves ranges.
func open(
	ctx context.Context, st store.Store, a assembly.Options, o *Options, elect *rebalance.Candidate,
) (*DB, error) {
	if err := checkRetention(o); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	all, err := assembly.Open(ctx, st, a)
	if err != nil {
		return nil, err
	}
	if !o.Unbalanced {
		all.Balance(context.Background(), rebalance.Options{
			MaxRows: o.MaxRows, MoveRate: moveRate, Wait: all.Wait(), Leader: elect, Retention: o.Retention, Log: o.Log,
		})
	}
	return &DB{all.Client, all}, nil
}

// checkRetention refuses rules that are wrong, or that nobody would apply.
func checkRetention(o *Options) error {
	err := retention.Check(o.Retention)
	if err == nil && o.Unbalanced && len(o.Retention) > 0 {
		err = errors.New("this process is Unbalanced, and does not apply them")
	}
	if err != nil {
		return store.Errorf(store.InvalidArgument, "Retention: %w", err)
	}
	return nil
}

// Close ends balancing and closes the store. No other method may be called after it, nor be
// under way. Moves in flight go on at the next Open, or in another process.
func (db *DB) Close() error { return db.all.Close() }
