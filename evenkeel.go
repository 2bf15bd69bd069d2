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
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// DB is an open store with a client over it. Its methods, those of the client, are safe
// for concurrent use.
type DB struct {
	*listing.Client

	store    store.Store
	counts   counter.Backend   // nil: nobody counts
	recorder *counter.Recorder // nil as counts is
	stop     context.CancelFunc
	work     sync.WaitGroup
	closing  sync.Once
	closed   error
}

// Options of a DB; the zero value is good.
type Options struct {
	// MaxRows is the most rows of a partition: what has more is split. Default 100,000.
	MaxRows int64
	// Unbalanced: this process neither moves ranges nor counts what it writes. What
	// nobody keeps in shape gets as slow as one large partition.
	Unbalanced bool
	// Log is told what begins, ends and fails; nil: nothing is logged.
	Log *slog.Logger
}

const (
	// moveRate is how many rows are copied and compared per second.
	moveRate = 20_000
	// lastCounts is how long Close waits for the last counts to be taken. They are
	// estimates: recounts make up for what is lost.
	lastCounts = 3 * time.Second
)

// Open opens the store in a directory, which is made if there is none. It belongs to one
// process at a time. The error is Unavailable where another one has it open or the disk
// does not work, and InvalidArgument where a newer version wrote it.
func Open(dir string, o Options) (*DB, error) {
	st, err := pebblestore.Open(dir, pebblestore.Options{Logger: o.Log})
	if err != nil {
		return nil, err
	}
	db := &DB{store: st}
	if !o.Unbalanced {
		counts, err := localcounter.Open(filepath.Join(dir, "counters"), localcounter.Options{Logger: o.Log})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		db.count(counts, o.Log)
	}
	if db.Client, err = listing.NewEmbedded(st, db.listing()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.balance(&o, rebalance.EmbeddedWait, nil)
	return db, nil
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
	// redis://host:6379/0; rediss:// for TLS.
	Counter string
	// Store has what else there is to say about the cluster; what is above counts.
	Store cassandrastore.Options
	// Lease is how long a process may use what it knows of a map; it is agreed on with
	// the keyspace. Default 3 s, as for the servers.
	Lease time.Duration
}

// OpenCassandra opens a keyspace. Every process of it may do so; they elect one that
// moves ranges. It fails with InvalidArgument where c is incomplete or contradicts what
// the keyspace has agreed on, and with Unavailable where the cluster can't be reached.
func OpenCassandra(ctx context.Context, c Cassandra) (*DB, error) {
	if c.Counter == "" && !c.Unbalanced {
		return nil, store.Errorf(store.InvalidArgument, "Counter is missing: the Redis in which all processes of the "+
			"keyspace count sizes, like redis://host:6379/0; or set Unbalanced, and nobody looks after what this process writes")
	}
	o := c.Store
	o.Hosts, o.DataCentre, o.Keyspace, o.Log = c.Hosts, c.DataCentre, cmp.Or(c.Keyspace, "evenkeel"), c.Log
	st, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	db := &DB{store: st}
	lease := cmp.Or(c.Lease, mapclient.DefaultLease)
	maps, err := mapclient.Join(ctx, st, mapclient.Options{Lease: lease}, false)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if c.Counter != "" && !c.Unbalanced {
		if err := db.countInRedis(c.Counter, c.Log); err != nil {
			maps.Close()
			return nil, errors.Join(err, db.Close())
		}
	}
	if db.Client, err = listing.New(st, maps, db.listing()); err != nil {
		maps.Close()
		return nil, errors.Join(err, db.Close())
	}
	db.balance(&c.Options, rebalance.Wait(lease), &rebalance.Candidate{Name: rebalance.Name("evenkeel")})
	return db, nil
}

func (db *DB) countInRedis(url string, log *slog.Logger) error {
	o, err := rediscounter.ParseURL(url)
	if err != nil {
		return store.Errorf(store.InvalidArgument, "Counter: %w", err)
	}
	counts, err := rediscounter.Open(o)
	if err == nil {
		db.count(counts, log)
	}
	return err
}

func (db *DB) count(counts counter.Backend, log *slog.Logger) {
	db.counts = counts
	db.recorder = counter.NewRecorder(counts, counter.RecorderOptions{Logger: log})
}

// listing are the client's options: it tells the counters what it writes.
func (db *DB) listing() (o listing.Options) {
	if db.counts != nil { // else interfaces that hold nil
		o.Recorder, o.Sizes = db.recorder, db.counts
	}
	return o
}

// balance keeps the buckets in shape from now on; elect: while this process leads.
func (db *DB) balance(o *Options, wait time.Duration, elect *rebalance.Candidate) {
	if o.Unbalanced {
		return
	}
	k := rebalance.New(rebalance.Options{
		Store: db.store, Buckets: db.Client, MaxRows: o.MaxRows, MoveRate: moveRate, Wait: wait,
		Counts: db.counts, Leader: elect, Log: o.Log,
	})
	ctx, stop := context.WithCancel(context.Background())
	db.stop = stop
	db.work.Go(func() { _ = k.Run(ctx) }) // it is logged
}

// Close ends what runs and closes the store. No other method may be called after it, nor
// be under way. Moves in flight go on at the next Open, or in another process.
func (db *DB) Close() error {
	db.closing.Do(func() {
		if db.stop != nil {
			db.stop()
		}
		db.work.Wait()
		if db.Client != nil {
			db.Maps().Close()
		}
		if db.recorder != nil {
			ctx, cancel := context.WithTimeout(context.Background(), lastCounts)
			defer cancel()
			_ = db.recorder.Close(ctx)
			db.closed = db.counts.Close()
		}
		db.closed = errors.Join(db.closed, db.store.Close())
	})
	return db.closed
}
