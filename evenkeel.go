// Package evenkeel keeps sorted listings of any size: buckets of keys with small values, in bytewise order, such as the
// objects of a store, the entries of a feed, or the readings of a sensor. A store of buckets is a directory that one
// process uses (Open), or a keyspace of Apache Cassandra that any number of processes share (OpenCassandra).
//
//	db, err := evenkeel.Open("evenkeel-data", evenkeel.Options{})
//	defer db.Close()
//	err = db.CreateBucket(ctx, "photos")
//	photos := db.Bucket("photos")
//	err = photos.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
//	e, err := photos.Get(ctx, []byte("2024/a.jpg"))
//	for item, err := range photos.All(ctx, listing.Query{Prefix: []byte("2024/")}) { … }
//	s, err := db.Status(ctx)
//	for size, err := range db.Sizes(ctx, "photos", nil) { … }
//	http.Handle("/evenkeel/", http.StripPrefix("/evenkeel", db.Handler(evenkeel.HandlerOptions{})))
//
// On Cassandra, with a keyspace that `rebalancer schema apply` has made, only the first line differs:
//
//	db, err := evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
//		Hosts: []string{"10.0.0.1", "10.0.0.2"}, DataCentre: "dc1", Counter: "redis://10.0.0.9:6379/0",
//	})
//
// # Buckets, objects and S3
//
// The buckets that a DB creates are plain: each key has a value of at most 64 KiB (listing.DefaultMaxValueBytes). A key
// has 1 to 65,535 bytes (store.MaxKeyBytes). Bodies of any size, with versions, are objects. Package objects stores
// them, in buckets of their own kind, by the [DB.Client] of the same store. Package s3api serves both kinds of buckets
// over S3, by the same client:
//
//	blobs, err := fileblobs.Open("evenkeel-data/bodies")
//	o, err := objects.New(db.Client(), blobs, objects.Options{})
//	err = o.CreateBucket(ctx, "films")
//	handler, err := s3api.New(s3api.Over(db.Client()), s3api.Options{Objects: o, Keys: keys})
//
// # How it stays fast
//
// A bucket is cut into ranges of keys. Each range has a partition of its own in the store, and a map says which
// partition has which range. A put, a get or a page of a listing costs one partition, whatever the size of the bucket.
// A [DB] counts what is written, and by these counts it splits, merges and moves ranges in the background, while reads
// and writes go on. The file docs/protocol.md, in the repository, says how a range moves, and why no key is lost and no
// listing has a hole meanwhile; docs/policy.md says when a range moves.
//
// # What is promised
//
//   - An acknowledged write is durable, and every read that begins later sees it, in every process (of the same data
//     centre, if a keyspace has several). An answer is right, or the operation fails with an error: a page of a listing
//     never has a hole.
//   - Errors have a kind, which errors.Is finds: store.NotFound, store.Conflict, store.InvalidArgument,
//     store.Unavailable, store.Timeout or store.Corrupt. Some have a name, too, such as listing.ErrNoSuchBucket. A
//     write that fails with listing.ErrOutcomeUnknown may have happened; to repeat it is safe. An operation whose
//     context ends fails with an error that wraps the context's error.
//   - The methods of a DB and of a bucket may be called from any number of goroutines. Only Close may not: it comes
//     last.
//   - Keys and values are bytes. Bounds of keys are half-open: the start belongs to an interval, the end does not, and
//     an empty end is plus infinity. Sizes are in rows, which are entries with their keys, and in bytes of keys and
//     values.
//
// Package listing has the operations on the entries of buckets, and package store the kinds of errors. Package keys
// makes keys of numbers, times and texts. Package retention has rules by which old entries are deleted.
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
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// DB is an open store of sorted listings, in a directory or in Cassandra. Its methods create, find and delete buckets,
// whose entries are read and written by a *listing.Bucket. In the background a DB splits, merges and moves ranges of
// keys between partitions, unless it is Unbalanced; Status, Moves, Sizes and Handler show what it does.
//
// The methods of a DB are safe for concurrent use, except Close. Operations fail with store.Unavailable after Close.
type DB struct {
	all    *assembly.DB
	engine *engine.Rebalancer
	// balanced is true if engine runs. If it is false, engine only tells what other processes do.
	balanced bool
	// name is the name of this process for people. shared is true if other processes may use the store, too.
	name   string
	shared bool
	// open ends when Close is called.
	open  context.Context
	close context.CancelFunc
}

// Options are the options of Open, such as the largest size of a partition. The zero value is good. OpenCassandra takes
// them embedded in Cassandra.
type Options struct {
	// MaxRows is the greatest number of rows of a partition. A partition with more rows is split. 0 means the default
	// of 100,000.
	MaxRows int64
	// Retention has rules by which old entries are deleted, once an hour. The process that moves ranges applies them.
	// Give all processes that share a keyspace of Cassandra the same rules, since any of them may be that process.
	Retention []retention.Rule
	// Unbalanced means that this process neither moves ranges of keys between partitions nor counts what it writes. (It
	// still counts if Cassandra.Counter is set.) If no other process moves ranges, large buckets become as slow as one
	// large partition.
	Unbalanced bool
	// Log receives messages on what begins, ends and fails. If Log is nil, nothing is logged.
	Log *slog.Logger
}

// moveRate is the greatest number of rows per second that this process copies and compares while it moves ranges of
// keys between partitions. All moves together share the rate.
const moveRate = 20_000

// Open opens the store in the directory dir, and makes the directory if it does not exist. Only one process at a time
// can have a directory open. Open fails with Unavailable if another process has the directory open or the disk does not
// work. It fails with InvalidArgument if a newer version of evenkeel wrote the directory.
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
// are required. Counter is required, too, if Unbalanced is not set. The tables of the keyspace must exist: `rebalancer
// schema apply` creates them.
type Cassandra struct {
	Options
	// Hosts are addresses of some nodes of the cluster, "host" or "host:port". The process asks these nodes for the
	// addresses of all other nodes.
	Hosts []string
	// DataCentre is the name of the local data centre, as nodetool status shows it.
	DataCentre string
	// Keyspace is the name of the keyspace in Cassandra. An empty Keyspace means "evenkeel".
	Keyspace string
	// Counter is the address of the Redis in which all processes of the keyspace count the sizes of ranges, such as
	// redis://host:6379/0, or rediss:// for TLS. See rediscounter.ParseURL for a cluster and for sentinels. If the
	// processes of a keyspace count in Redis, OpenCassandra refuses a process without Counter.
	Counter string
	// Store has further options for the cluster. The fields Hosts, DataCentre, Keyspace and Log of Cassandra take
	// precedence over those of Store.
	Store cassandrastore.Options
	// Lease is how long a process may use its copy of a bucket's map, which says where keys lie, without reading the
	// map again. All processes of a keyspace use the lease of the first process, by default 3 s. 0 means the lease of
	// the keyspace. Any other value must equal the lease of the keyspace.
	Lease time.Duration
}

// OpenCassandra opens a keyspace of a Cassandra cluster. Any number of processes may open the same keyspace. They divide
// its buckets among them, and each moves the ranges of keys of its share. OpenCassandra fails with InvalidArgument if c is
// incomplete, or contradicts what the processes of the keyspace have agreed on. It fails with Unavailable if the
// cluster can't be reached.
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
	a.Self = processes.Process{Name: engine.Name("evenkeel"), Version: moduleVersion(), DataCentre: c.DataCentre}
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
	return open(ctx, st, a, &c.Options, &engine.Candidate{Name: engine.Name("evenkeel")})
}

// moduleVersion returns the version of the module evenkeel in the program that embeds it, such as v1.2.0. It returns ""
// if the version is not known.
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

// open returns a DB over the store st. If o.Unbalanced is not set, the DB splits, merges and moves ranges of keys in
// the background. elect describes this process as a candidate: the processes of a keyspace elect the one that moves
// ranges. A nil elect means that no election is needed. If open fails, the store is closed.
func open(
	ctx context.Context, st store.Store, a assembly.Options, o *Options, elect *engine.Candidate,
) (*DB, error) {
	if err := checkRetention(o); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	all, err := assembly.Open(ctx, st, a)
	if err != nil {
		return nil, err
	}
	db := &DB{all: all, balanced: !o.Unbalanced, name: engine.Name("evenkeel"), shared: elect != nil}
	db.open, db.close = context.WithCancel(context.Background())
	if db.balanced {
		db.engine = all.Balance(context.Background(), engine.Options{
			MaxRows: o.MaxRows, MoveRate: moveRate, Wait: all.Wait(), Leader: elect, Retention: o.Retention, Log: o.Log,
		})
	} else {
		db.engine = engine.New(engine.Options{
			Store: all.Store, Buckets: all.Client, Counts: all.Counts, Counting: all.Counting, Presence: all.Presence,
			MaxRows: o.MaxRows, Leader: elect, Aside: true, Log: o.Log,
		})
	}
	return db, nil
}

// checkRetention returns nil if the rules of o.Retention for deleting old entries can be used, else InvalidArgument.
// They can't be used if they are wrong, or if o.Unbalanced is set: a process that does not move ranges does not apply
// rules either.
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

// Close ends the work in the background and closes the store. No other method should be running when Close is called.
// Requests to a Handler of the DB are ended, and fail from then on. Moves of ranges that are not complete go on at the
// next Open, or in another process. A second call does nothing, and returns the error of the first.
func (db *DB) Close() error {
	db.close()
	return db.all.Close()
}

// errClosed is the error of methods that are called after Close.
var errClosed = store.Errorf(store.Unavailable, "the DB is closed")

// ready returns nil if the DB is open and ctx has not ended, else the error for the caller. what names the method that
// was called, such as "sizes".
func (db *DB) ready(ctx context.Context, what string) error {
	err := context.Cause(ctx)
	if db.open.Err() != nil {
		err = errClosed
	}
	return store.Wrap(what, err)
}
