// Package evenkeel keeps sorted listings of any size, in a directory or in Apache Cassandra. Programs embed it: a DB is
// one handle with everything that package listing offers. A DB also counts what is written, splits and merges ranges by
// itself to keep partitions in shape, and is closed once.
//
// The parts can be used by themselves, too: listing (the client), partmap/mapclient (maps and leases), store/...
// (stores), counter (sizes), rebalance/... (moves).
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

// DB is an open store, in a directory or in Cassandra, with a client of its buckets. A DB may also move ranges in the
// background. The methods of the client are safe for concurrent use.
type DB struct {
	*listing.Client
	all *assembly.DB
}

// Options are the options of Open; the zero value is good. OpenCassandra takes them as a part of Cassandra.
type Options struct {
	// MaxRows is the greatest number of rows of a partition: a partition with more rows is split. The default is
	// 100,000.
	MaxRows int64
	// Retention are rules by which old entries are deleted, once an hour, by the process that moves ranges. Over
	// Cassandra give all processes the same rules.
	Retention []retention.Rule
	// Unbalanced means that this process neither moves ranges nor counts what it writes (except by Cassandra.Counter).
	// If no other process moves ranges, large buckets become as slow as one large partition.
	Unbalanced bool
	// Log receives messages on what begins, ends and fails; nil: nothing is logged.
	Log *slog.Logger
}

// moveRate is the greatest number of rows per second that moves of ranges copy and compare, all together.
const moveRate = 20_000

// Open opens the store in a directory, and makes the directory if there is none. A directory belongs to one process at
// a time. Open fails with Unavailable where another process has the directory open or the disk does not work. It fails
// with InvalidArgument where a newer version of evenkeel wrote the directory.
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

// Cassandra has the options of OpenCassandra: where the keyspace is, and how this process uses it. Hosts and DataCentre
// are required, and so is Counter unless Unbalanced is set. The tables of the keyspace must exist: `rebalancer schema
// apply` creates them.
type Cassandra struct {
	Options
	// Hosts are addresses of some nodes to begin with, "host" or "host:port"; the other nodes are found through these.
	Hosts []string
	// DataCentre is the name of the local data centre, as nodetool status shows it.
	DataCentre string
	// Keyspace is the name of the keyspace; empty means "evenkeel".
	Keyspace string
	// Counter is the address of the Redis in which all processes of the keyspace count sizes, such as
	// redis://host:6379/0; rediss:// for TLS. See rediscounter.ParseURL for a cluster and for sentinels. All processes
	// of a keyspace agree on counting in Redis: where sizes are counted there, a process without Counter is refused.
	Counter string
	// Store has further options for the cluster. The fields of Cassandra above take precedence over those of Store.
	Store cassandrastore.Options
	// Lease is how long a process may use what it knows of a map. It must be the lease of the keyspace, which is the
	// default. The first process of a keyspace decides that lease, by default 3 s.
	Lease time.Duration
}

// OpenCassandra opens a keyspace of a Cassandra cluster. Any number of processes may open it; they elect one of them,
// which moves ranges. OpenCassandra fails with InvalidArgument if c is incomplete, or contradicts what the processes of
// the keyspace have agreed on. It fails with Unavailable if the cluster can't be reached.
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

// moduleVersion returns the version of this module in the program that embeds it; empty if the version is not known.
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

// open makes a DB over the store st. Unless o.Unbalanced is set, the DB splits, merges and moves ranges in the
// background. elect, if not nil, describes this process in elections: the processes of a keyspace elect the one that
// moves ranges.
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

// checkRetention returns InvalidArgument if the rules of o.Retention can't be used, otherwise nil. They can't be used
// if they are wrong, or if o.Unbalanced is set: a process that does not move ranges does not apply rules either.
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

// Close ends the work in the background and closes the store. No other method may be running then, or be called after
// it. Moves of ranges that are not complete go on at the next Open, or in another process.
func (db *DB) Close() error { return db.all.Close() }
