package bench

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/gocql/gocql"
	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/internal/layouts"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// world is a store with all that the layouts in it need.
type world interface {
	// rows is the store of the layouts; it changes when the world settles.
	rows() store.Store
	// client makes a client of evenkeel over a store, which may be one that counts
	// what goes to rows. The world closes it.
	client(s store.Store) (*listing.Client, error)
	// bare is the database without any layout of ours; its keys lie in one
	// partition of their own for each set.
	bare() bare
	// settle brings all that was written into files.
	settle(ctx context.Context) error
	close() error
}

// bare is a database as one would use it by hand.
type bare interface {
	load(ctx context.Context, set string, entries []layouts.Entry) error
	put(ctx context.Context, set string, key, value []byte) error
	page(ctx context.Context, set string, after, end []byte, limit int) ([]layouts.Entry, error)
}

func bucketOf(set, layout string) store.BucketID {
	sum := sha1.Sum([]byte(set + "\x00" + layout))
	return store.BucketID(uuid.Must(uuid.FromBytes(sum[:16])))
}

// embedded is Pebble in a folder, and another one for the bare engine.
type embedded struct {
	dir    string
	noSync bool
	s      *pebblestore.Store
	db     *pebble.DB
	maps   []*mapclient.Client
}

func openEmbedded(noSync bool) (*embedded, error) {
	dir, err := os.MkdirTemp("", "evenkeel-layouts-")
	if err != nil {
		return nil, err
	}
	w := &embedded{dir: dir, noSync: noSync}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

const cacheBytes, memTableBytes = 128 << 20, 64 << 20 // pebblestore's own

func (w *embedded) open() (err error) {
	if w.s, err = pebblestore.Open(filepath.Join(w.dir, "store"), pebblestore.Options{NoSync: w.noSync, CacheBytes: cacheBytes, MemTableBytes: memTableBytes}); err != nil {
		return err
	}
	o := pebblestore.EngineOptions()
	o.Cache, o.MemTableSize, o.Logger = pebble.NewCache(cacheBytes), memTableBytes, silent{}
	defer o.Cache.Unref()
	w.db, err = pebble.Open(filepath.Join(w.dir, "bare"), o)
	return err
}

func (w *embedded) shut() error {
	for _, m := range w.maps {
		m.Close()
	}
	w.maps = nil
	var errs []error
	if w.s != nil {
		errs = append(errs, w.s.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	w.s, w.db = nil, nil
	return errors.Join(errs...)
}

func (w *embedded) settle(context.Context) error {
	if err := w.shut(); err != nil {
		return err
	}
	return w.open()
}

func (w *embedded) close() error {
	return errors.Join(w.shut(), os.RemoveAll(w.dir))
}

func (w *embedded) rows() store.Store { return w.s }

func (w *embedded) client(s store.Store) (*listing.Client, error) {
	c, err := listing.NewEmbedded(s, listing.Options{})
	if err == nil {
		w.maps = append(w.maps, c.Maps())
	}
	return c, err
}

func (w *embedded) bare() bare { return w }

func (w *embedded) sync() *pebble.WriteOptions {
	if w.noSync {
		return pebble.NoSync
	}
	return pebble.Sync
}

func (w *embedded) load(_ context.Context, set string, entries []layouts.Entry) error {
	for _, e := range entries {
		if err := w.db.Set([]byte(set+"\x00"+string(e.Key)), e.Value, pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

func (w *embedded) put(_ context.Context, set string, key, value []byte) error {
	return w.db.Set(append([]byte(set+"\x00"), key...), value, w.sync())
}

// page copies keys and values out into memory of the page's own.
func (w *embedded) page(_ context.Context, set string, after, end []byte, limit int) ([]layouts.Entry, error) {
	prefix := []byte(set + "\x00")
	o := &pebble.IterOptions{LowerBound: append([]byte(set+"\x00"), after...), UpperBound: []byte(set + "\x01")}
	if len(after) > 0 {
		o.LowerBound = append(o.LowerBound, 0)
	}
	if len(end) > 0 {
		o.UpperBound = append([]byte(set+"\x00"), end...)
	}
	it, err := w.db.NewIter(o)
	if err != nil {
		return nil, err
	}
	rows, arena := make([]layouts.Entry, 0, limit), make([]byte, 0, limit*170)
	for ok := it.First(); ok && len(rows) < limit; ok = it.Next() {
		k, v := it.Key()[len(prefix):], it.Value()
		at := len(arena)
		arena = append(append(arena, k...), v...)
		rows = append(rows, layouts.Entry{Key: arena[at : at+len(k) : at+len(k)], Value: arena[at+len(k) : len(arena) : len(arena)]})
	}
	return rows, it.Close()
}

// silent keeps Pebble's own messages out of the results.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

// onCassandra is a keyspace of a node.
type onCassandra struct {
	cluster *cassandratest.Cluster // nil if the node is somebody else's
	admin   *cassandrastore.Admin
	o       cassandrastore.Options
	s       *cassandrastore.Store
	raw     *gocql.Session
	maps    []*mapclient.Client
}

// clocks is the number of map clocks.
const clocks = 2

// openCassandra uses a node, or starts one of its own if address is empty.
func openCassandra(ctx context.Context, address string) (w *onCassandra, err error) {
	const patience = 35 * time.Second // all share a few cores
	w = &onCassandra{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if address == "" {
		if w.cluster, err = cassandratest.Start(ctx, cassandratest.Options{Patient: true, Optimise: true}); err != nil {
			return w, err
		}
		address = w.cluster.Nodes[0].Address
	}
	w.o = cassandrastore.Options{
		Hosts: []string{address}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: "layouts" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		ReadTimeout: patience, WriteTimeout: patience, SwapTimeout: patience, ConnectTimeout: patience,
	}
	if w.admin, err = cassandrastore.OpenAdmin(ctx, w.o); err != nil {
		return w, err
	}
	if err = w.admin.Apply(ctx, cassandrastore.Replication{"dc1": 1}); err != nil {
		return w, err
	}
	if w.s, err = cassandrastore.Open(ctx, w.o); err != nil {
		return w, err
	}
	if err = mapclient.InitClocks(ctx, w.s, clocks); err != nil {
		return w, err
	}
	w.raw, err = session(address, w.o.Keyspace)
	return w, err
}

// session is the bare driver as somebody who knows its traps would set it up.
func session(address, keyspace string) (*gocql.Session, error) {
	c := gocql.NewCluster(address)
	c.Keyspace, c.ProtoVersion, c.Consistency = keyspace, 4, gocql.LocalQuorum
	c.WriteCoalesceWaitTime, c.PageSize, c.Timeout, c.ConnectTimeout = 0, 0, 35*time.Second, 35*time.Second
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy("dc1"), gocql.ShuffleReplicas())
	return c.CreateSession()
}

func (w *onCassandra) close() error {
	for _, m := range w.maps {
		m.Close()
	}
	var errs []error
	if w.raw != nil {
		w.raw.Close()
	}
	if w.s != nil {
		errs = append(errs, w.s.Close())
	}
	if w.admin != nil {
		if w.cluster == nil { // a node of our own takes all with it
			errs = append(errs, w.admin.Drop(context.Background()))
		}
		w.admin.Close()
	}
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	return errors.Join(errs...)
}

func (w *onCassandra) rows() store.Store { return w.s }

func (w *onCassandra) client(s store.Store) (*listing.Client, error) {
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks})
	if err != nil {
		return nil, err
	}
	w.maps = append(w.maps, m)
	return listing.New(s, m, listing.Options{})
}

// settle makes the node flush, by a table option: nodetool would take a minute of a
// busy processor. The pause is far above the period; what is not flushed by then is
// read from memory, which is no error.
func (w *onCassandra) settle(ctx context.Context) error {
	const period, pause = time.Second, 5 * time.Second
	for _, p := range []time.Duration{period, 0} {
		err := w.raw.Query(fmt.Sprintf("ALTER TABLE rows WITH memtable_flush_period_in_ms = %d", p.Milliseconds())).WithContext(ctx).Exec()
		if err != nil {
			return err
		}
		if p == 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *onCassandra) bare() bare { return w }

// The bare driver's partition of a set is of the same table.
func (w *onCassandra) bareIDs(set string) (bucket, partition gocql.UUID) {
	return gocql.UUID(bucketOf(set, "bare")), gocql.UUID{15: 1}
}

const bareBatch = 200

func (w *onCassandra) load(ctx context.Context, set string, entries []layouts.Entry) error {
	bucket, partition := w.bareIDs(set)
	now := time.Now().UnixMicro()
	for len(entries) > 0 {
		n := min(bareBatch, len(entries))
		b := w.raw.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
		for _, e := range entries[:n] {
			b.Query("INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?", bucket, partition, e.Key, e.Value, now)
			now++
		}
		if err := w.raw.ExecuteBatch(b); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

func (w *onCassandra) put(ctx context.Context, set string, key, value []byte) error {
	bucket, partition := w.bareIDs(set)
	return w.raw.Query("INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
		bucket, partition, key, value, time.Now().UnixMicro()).WithContext(ctx).Exec()
}

func (w *onCassandra) page(ctx context.Context, set string, after, end []byte, limit int) ([]layouts.Entry, error) {
	bucket, partition := w.bareIDs(set)
	statement, args := "SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key > ?", []any{bucket, partition, append([]byte{}, after...)}
	if len(end) > 0 {
		statement, args = statement+" AND key < ?", append(args, end)
	}
	iter := w.raw.Query(statement+" LIMIT ?", append(args, limit)...).WithContext(ctx).Iter()
	rows := make([]layouts.Entry, 0, limit)
	for {
		var e layouts.Entry
		if !iter.Scan(&e.Key, &e.Value) {
			return rows, iter.Close()
		}
		rows = append(rows, e)
	}
}
