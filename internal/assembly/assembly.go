// Package assembly puts together the parts that a process needs to serve a store: maps, counters, a client that counts
// its writes, and balancing. It closes all parts in the right order.
package assembly

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the options of Open: whether other processes use the store, and how the sizes of partitions are counted.
type Options struct {
	// Shared holds the options for the partition maps of a store that other processes use, too. nil means that only
	// this process uses the store. If Shared has a lease or a clock skew, these must be the same as the store's (see
	// mapclient.Join). A store whose servers have wall clocks (Cassandra) needs Shared.
	Shared *mapclient.Options
	// ChangeTerms makes Open replace the settings that all processes of the store share (lease, clock skew, counting)
	// by those in Shared and Counting, if they differ. Open refuses the change while another process may be alive,
	// since that process would go on with the old settings.
	ChangeTerms bool
	// Damaged is for repairs: if the settings in the store that all processes share can't be read, Open takes those in
	// Shared (see mapclient.JoinDamaged).
	Damaged bool
	// MapCacheBytes bounds the cache of partition maps, in bytes, if the store is not shared.
	MapCacheBytes int64
	// Counting says how the sizes of partitions are known. The processes of a shared store must agree on one value. 0
	// means that this process accepts the present value, since it neither writes nor leads.
	Counting mapclient.Counting
	// OpenCounter opens the backend that counts the rows of partitions, such as Redis. If OpenCounter is nil or returns
	// a nil Backend, sizes are not counted.
	OpenCounter func() (counter.Backend, error)
	// Self describes this process in the list of processes of a shared store. Open fills in the id, the start time and
	// the versions of the schema.
	Self processes.Process
	// Log receives warnings. If Log is nil, warnings are discarded.
	Log *slog.Logger
}

// DB is an open store, with a client that reads and writes its buckets, and with the components that count and balance
// the store. The methods of a DB are safe for concurrent use.
type DB struct {
	*listing.Client
	Store    store.Store
	Counts   counter.Backend   // nil if sizes are not counted
	Recorder *counter.Recorder // nil if Counts is nil
	// Counting says how the processes have agreed to know the sizes of partitions; 0 if the store is not shared.
	Counting mapclient.Counting
	// Presence is this process's entry in the list of processes; nil if the store is not shared.
	Presence *processes.Presence

	stop   context.CancelFunc // ends balancing
	work   sync.WaitGroup
	once   sync.Once
	closed error
}

// lastCounts is the longest time that Close waits until the last counts of writes are stored. After that time they are
// lost, which does little harm: counts are estimates, which later counts of all rows correct.
const lastCounts = 3 * time.Second

// Open returns a DB for the store s, with a client of its buckets and with counters. The store belongs to the DB from
// then on: closing the DB closes the store. If Open fails, it closes the store.
func Open(ctx context.Context, s store.Store, o Options) (*DB, error) {
	db := &DB{Store: s}
	err := db.open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (db *DB) open(ctx context.Context, o Options) (err error) {
	var client listing.Options
	if o.OpenCounter != nil {
		counts, err := o.OpenCounter()
		if err != nil {
			return err
		}
		db.Counts = counts
	}
	if db.Counts != nil {
		db.Recorder = counter.NewRecorder(db.Counts, counter.RecorderOptions{Logger: o.Log})
		client.Recorder, client.Sizes = db.Recorder, db.Counts
	}
	if o.Shared == nil {
		if _, shared := db.Store.(store.WallClock); shared {
			return store.Errorf(store.InvalidArgument, "other processes use this store, too: Options.Shared is missing")
		}
		client.CacheBytes = o.MapCacheBytes
		db.Client, err = listing.New(db.Store, client)
		return err
	}
	// The entry is written before the version of the schema is read. So an upgrade, which announces itself before it
	// reads the list, finds this process, or this process finds the upgrade.
	self := o.Self
	self.Hints = true // in this version only listd writes objects
	self.OldestSchema, self.NewestSchema = int64(mapclient.OldestSchema), int64(mapclient.NewestSchema)
	db.Presence, err = processes.Appear(ctx, db.Store, self, o.Log)
	if err != nil {
		return err
	}
	maps, err := db.join(ctx, o, false)
	if o.ChangeTerms && store.KindOf(err) == store.InvalidArgument {
		if err = db.alone(ctx, err); err == nil {
			maps, err = db.join(ctx, o, true)
		}
	}
	if err != nil {
		return err
	}
	if clock := maps.Time(); clock != nil {
		db.Presence.Count(clock.SharedBy)
	}
	if db.Client, err = listing.New(mapclient.With(db.Store, maps), client); err != nil {
		maps.Close()
	}
	return err
}

// join makes this process follow the settings that all processes of the store share, such as the length of leases. If
// change is true, it stores the settings of this process instead. The result is the client of the store's maps.
func (db *DB) join(ctx context.Context, o Options, change bool) (maps *mapclient.Client, err error) {
	if o.Damaged {
		maps, err = mapclient.JoinDamaged(ctx, db.Store, *o.Shared)
	} else {
		maps, err = mapclient.Join(ctx, db.Store, *o.Shared, change)
	}
	if err != nil {
		return nil, err
	}
	db.Counting, err = mapclient.AgreeOnCounting(ctx, db.Store, o.Counting, change)
	if o.Damaged && store.KindOf(err) == store.Corrupt {
		err = nil // a process with damaged terms counts nothing
	}
	if err != nil {
		maps.Close()
	}
	return maps, err
}

// alone returns nil if no other process of the store may be alive, else an error. Only then may shared settings of the
// store change, since another process would not learn of the change. `why` is the reason for the change, for the
// error's text.
func (db *DB) alone(ctx context.Context, why error) error {
	all, err := processes.List(ctx, db.Store)
	if err != nil {
		return err
	}
	self, now := db.Presence.Self().ID, time.Now()
	for _, p := range all {
		if ago := now.Sub(p.Seen); p.ID != self && ago < processes.Silent {
			return store.Errorf(store.InvalidArgument, "%w; nothing was changed, as another one runs: %s said so %v ago (one "+
				"that was killed counts for %v)",
				why, p.Name, max(0, ago).Round(time.Second), processes.Silent)
		}
	}
	return nil
}

// Wait returns the longest wait of a move of rows after a change of a partition map. The move waits until no process
// uses the old map any more, i.e. for the length of the leases of maps.
func (db *DB) Wait() time.Duration {
	if lease := mapclient.Of(db.Client).Leases().Length; lease != 0 {
		return engine.Wait(lease)
	}
	return engine.EmbeddedWait
}

// Balance starts a Rebalancer, which splits and merges partitions by their sizes, and returns it. The Rebalancer works
// until ctx ends or Close is called. In the options o, the DB's own values replace Store, Buckets, Counts, Counting and
// Presence.
func (db *DB) Balance(ctx context.Context, o engine.Options) *engine.Rebalancer {
	o.Store, o.Buckets, o.Counts, o.Counting, o.Presence = db.Store, db.Client, db.Counts, db.Counting, db.Presence
	k := engine.New(o)
	ctx, db.stop = context.WithCancel(ctx)
	db.work.Go(func() { _ = k.Run(ctx) }) // Run logs its errors
	return k
}

// Close stops the Rebalancer, and then closes the client, the counters and the store, in this order. No other method
// may be called after Close, or be running when it is called.
func (db *DB) Close() error {
	db.once.Do(func() {
		if db.stop != nil {
			db.stop()
		}
		db.work.Wait()
		if db.Client != nil {
			mapclient.Of(db.Client).Close()
		}
		if db.Presence != nil {
			db.Presence.Close()
		}
		if db.Recorder != nil {
			ctx, cancel := context.WithTimeout(context.Background(), lastCounts)
			defer cancel()
			_ = db.Recorder.Close(ctx)
		}
		if db.Counts != nil {
			db.closed = db.Counts.Close()
		}
		db.closed = errors.Join(db.closed, db.Store.Close())
	})
	return db.closed
}
