// Package assembly puts together what a process needs to serve a store: maps, counters, a
// client that counts its writes, and balancing; and closes all of it in order.
package assembly

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// Options of Open.
type Options struct {
	// Shared are the options of the maps of a store that other processes use, too; nil: this
	// process has the store for itself. A lease or a clock skew in it must be that of the store,
	// see mapclient.Join. A store whose servers have wall clocks is always shared.
	Shared *mapclient.Options
	// ChangeTerms makes the terms in Shared and Counting those of the store, where they differ, see mapclient.Join. That is
	// refused while the list of processes has another one that may live: it would go on by the terms of before.
	ChangeTerms bool
	// Damaged: what can't be read of the terms is as Shared has it, see mapclient.JoinDamaged.
	Damaged bool
	// MapCacheBytes bounds the cache of maps of a store that is not shared.
	MapCacheBytes int64
	// Counting is how sizes are known, which is agreed on with the store; 0: this process takes
	// what there is, since it writes and leads nothing. Of a shared store only.
	Counting mapclient.Counting
	// OpenCounter opens the counters of sizes; nil, or a nil Backend: sizes are not counted.
	OpenCounter func() (counter.Backend, error)
	// Self is this process in the list of those that use a shared store, without what the list itself knows (its id, since
	// when it runs, the schemas).
	Self processes.Process
	// Log takes the warnings; nil: they are discarded.
	Log *slog.Logger
}

// DB is an open store with a client over it. Its methods are safe for concurrent use.
type DB struct {
	*listing.Client
	Store    store.Store
	Counts   counter.Backend   // nil: sizes are not counted
	Recorder *counter.Recorder // nil if Counts is
	// Counting is what was agreed on; 0 where the store is not shared.
	Counting mapclient.Counting
	// Presence is this process's entry in the list of processes; nil where the store is not shared.
	Presence *processes.Presence

	stop   context.CancelFunc // of balancing
	work   sync.WaitGroup
	once   sync.Once
	closed error
}

// lastCounts is how long Close waits for the last counts to be stored. Counts are estimates:
// recounts correct them.
const lastCounts = 3 * time.Second

// Open makes a DB over a store, which belongs to the DB from then on: it is closed with it, or
// if Open fails.
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
		db.Client, err = listing.NewEmbedded(db.Store, client)
		return err
	}
	// The entry is written before the version of the schema is read. So an upgrade, which announces itself before it reads
	// the list, finds this process, or this process finds the upgrade.
	self := o.Self
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
	if err == nil {
		if db.Client, err = listing.New(db.Store, maps, client); err != nil {
			maps.Close()
		}
	}
	return err
}

// join takes the terms of the store. With change the process's own terms become those of the store.
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
		err = nil // it counts nothing
	}
	if err != nil {
		maps.Close()
	}
	return maps, err
}

// alone fails while another process may live, which would not hear of a change of terms. why is the reason for the
// change.
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

// Wait returns the longest wait of a move of this process, by the lease of the store.
func (db *DB) Wait() time.Duration {
	if lease := db.Maps().Leases().Length; lease != 0 {
		return rebalance.Wait(lease)
	}
	return rebalance.EmbeddedWait
}

// Balance returns a Rebalancer that keeps the buckets in shape until ctx ends or Close is called. Balance sets Store,
// Buckets, Counts, Counting and Presence of the options.
func (db *DB) Balance(ctx context.Context, o rebalance.Options) *rebalance.Rebalancer {
	o.Store, o.Buckets, o.Counts, o.Counting, o.Presence = db.Store, db.Client, db.Counts, db.Counting, db.Presence
	k := rebalance.New(o)
	ctx, db.stop = context.WithCancel(ctx)
	db.work.Go(func() { _ = k.Run(ctx) }) // it logs its errors
	return k
}

// Close ends balancing, then the client, then the counters, and closes the store. No other
// method may be called after it, nor be under way.
func (db *DB) Close() error {
	db.once.Do(func() {
		if db.stop != nil {
			db.stop()
		}
		db.work.Wait()
		if db.Client != nil {
			db.Maps().Close()
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
