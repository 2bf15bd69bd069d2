package bench

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/gocql/gocql"
	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/cqltables"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// world is an open store with everything that the measured layouts need: Pebble in a temporary directory, or a keyspace
// of Cassandra.
type world interface {
	// rows returns the store of a layout. The store is another one after settle or spill.
	rows(layout string) store.Store
	// client returns a client of evenkeel over the store s, which is the result of rows, or a store that counts the
	// reads of that store. The world closes the client.
	client(s store.Store) (*listing.Client, error)
	// bare returns the database without any layout. The keys of each set lie in one partition.
	bare() bare
	// settle brings all written data of all layouts into files, and waits until no file is being compacted.
	settle(ctx context.Context) error
	// spill brings the data that was written since the last spill into new files.
	spill(ctx context.Context) error
	// compacting turns the compaction of files on or off, in stores that allow this.
	compacting(ctx context.Context, on bool) error
	close() error
}

// bare is a database as a programmer would use it by hand, without a layout: the yardstick for all layouts.
type bare interface {
	load(ctx context.Context, set string, entries []layouts.Entry) error
	put(ctx context.Context, set string, key, value []byte) error
	page(ctx context.Context, set string, after, end []byte, limit int) ([]layouts.Entry, error)
}

func bucketOf(set, layout string) store.BucketID {
	sum := sha1.Sum([]byte(set + "\x00" + layout))
	return store.BucketID(uuid.Must(uuid.FromBytes(sum[:16])))
}

// bareBatch is the number of rows in a batch when the bare database is loaded. The layouts load batches of the same
// size.
const bareBatch = 200

// inOrder returns the entries sorted by key. Entries with the same key stay in their order.
func inOrder(entries []layouts.Entry) []layouts.Entry {
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b layouts.Entry) int { return bytes.Compare(a.Key, b.Key) })
	return sorted
}

// embedded is a world of Pebble engines in a temporary directory: one engine for each layout, and one without a layout.
// All engines have the same options. So the cache and the compactions of one layout do not affect another layout.
type embedded struct {
	dir     string
	noSync  bool
	layouts []string
	engines map[string]pebblestore.Store // by layout
	db      *pebble.DB                   // bare
	maps    []*mapclient.Client
	// pageBytes is the size in bytes of the last full page that was read from the bare engine.
	pageBytes atomic.Int64
}

func openEmbedded(noSync bool, layouts []string) (*embedded, error) {
	dir, err := os.MkdirTemp("", "evenkeel-layouts-")
	if err != nil {
		return nil, err
	}
	w := &embedded{dir: dir, noSync: noSync, layouts: layouts}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// cacheBytes is the size of the cache of each Pebble engine. memTableBytes is the size of a memtable, the buffer in
// memory for new rows. An engine may have two memtables.
const cacheBytes, memTableBytes = 128 << 20, 64 << 20

// folder returns the path of the directory of a layout's engine.
func (w *embedded) folder(layout string) string { return filepath.Join(w.dir, layout) }

func (w *embedded) open() (err error) {
	w.engines = map[string]pebblestore.Store{}
	for _, name := range w.layouts {
		s, err := pebblestore.Open(w.folder(name),
			pebblestore.Options{NoSync: w.noSync, CacheBytes: cacheBytes, MemTableBytes: memTableBytes})
		if err != nil {
			return err
		}
		w.engines[name] = s
	}
	w.db, err = openEngine(w.folder(nameBare))
	return err
}

// openEngine opens a directory as a Pebble engine, without the package pebblestore but with the same options.
func openEngine(dir string) (*pebble.DB, error) {
	o := pebblestore.EngineOptions()
	o.Cache, o.MemTableSize, o.Logger = pebble.NewCache(cacheBytes), memTableBytes, silent{}
	defer o.Cache.Unref()
	return pebble.Open(dir, o)
}

func (w *embedded) shut() error {
	for _, m := range w.maps {
		m.Close()
	}
	w.maps = nil
	var errs []error
	for _, s := range w.engines {
		errs = append(errs, s.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	w.engines, w.db = nil, nil
	return errors.Join(errs...)
}

// settle compacts each engine into one level, and then opens all engines again.
func (w *embedded) settle(ctx context.Context) error {
	if err := w.shut(); err != nil {
		return err
	}
	for _, name := range append(slices.Clone(w.layouts), nameBare) {
		db, err := openEngine(w.folder(name))
		if err != nil {
			return err
		}
		if err := errors.Join(db.Compact(ctx, []byte{0}, []byte{0xff}, true), db.Close()); err != nil {
			return fmt.Errorf("compacting %s: %w", name, err)
		}
	}
	return w.open()
}

// spill closes and opens all engines, which turns their write-ahead logs into files.
func (w *embedded) spill(context.Context) error {
	if err := w.shut(); err != nil {
		return err
	}
	return w.open()
}

// compacting does nothing, as each Pebble engine compacts when it likes.
func (w *embedded) compacting(context.Context, bool) error { return nil }

func (w *embedded) close() error {
	return errors.Join(w.shut(), os.RemoveAll(w.dir))
}

func (w *embedded) rows(layout string) store.Store { return w.engines[layout] }

func (w *embedded) client(s store.Store) (*listing.Client, error) {
	c, err := listing.New(s, listing.Options{})
	if err == nil {
		w.maps = append(w.maps, mapclient.Of(c))
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

// load writes the entries in batches of neighbouring keys, as the layouts do.
func (w *embedded) load(_ context.Context, set string, entries []layouts.Entry) error {
	for some := range slices.Chunk(inOrder(entries), bareBatch) {
		b := w.db.NewBatch()
		for _, e := range some {
			if err := b.Set([]byte(set+"\x00"+string(e.Key)), e.Value, nil); err != nil {
				return err
			}
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

func (w *embedded) put(_ context.Context, set string, key, value []byte) error {
	return w.db.Set(append([]byte(set+"\x00"), key...), value, w.sync())
}

// page returns up to limit entries with keys above after and below end. The keys and values are copied into one block
// of memory, whose size is a little more than that of the last full page.
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
	rows, arena := make([]layouts.Entry, 0, limit), make([]byte, 0, w.pageBytes.Load()*17/16+4096)
	for ok := it.First(); ok && len(rows) < limit; ok = it.Next() {
		k, v := it.Key()[len(prefix):], it.Value()
		at := len(arena)
		arena = append(append(arena, k...), v...)
		rows = append(rows, layouts.Entry{
			Key: arena[at : at+len(k) : at+len(k)], Value: arena[at+len(k) : len(arena) : len(arena)],
		})
	}
	if len(rows) == limit {
		w.pageBytes.Store(int64(len(arena)))
	}
	return rows, it.Close()
}

// silent is a logger that drops Pebble's own messages, so that they do not appear among the results.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

// onCassandra is a world in a new keyspace of a Cassandra node.
type onCassandra struct {
	cluster *cassandratest.Cluster // nil if the node is somebody else's
	admin   cassandrastore.Admin
	o       cassandrastore.Options
	s       cassandrastore.Store
	raw     *gocql.Session
	maps    []*mapclient.Client
}

// clocks is the number of map clocks in the keyspace. A map clock is a record that tells clients when maps of buckets
// change.
const clocks = 2

// openCassandra creates a keyspace on the Cassandra node at address, and opens the keyspace. If address is empty,
// openCassandra starts a node of its own.
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
		Hosts: []string{address}, DataCentre: "dc1", AllowSingleReplica: true,
		Keyspace:    "layouts" + strings.ReplaceAll(uuid.NewString(), "-", ""),
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

// session returns a session of the bare driver gocql, with the settings that an experienced user would choose.
func session(address, keyspace string) (*gocql.Session, error) {
	c := gocql.NewCluster(address)
	c.Keyspace, c.ProtoVersion, c.Consistency = keyspace, 4, gocql.LocalQuorum
	c.WriteCoalesceWaitTime, c.PageSize, c.Timeout, c.ConnectTimeout = 0, 0, 35*time.Second, 35*time.Second
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy("dc1"),
		gocql.ShuffleReplicas())
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

// rows returns the store of the keyspace, in which all layouts share one table.
func (w *onCassandra) rows(string) store.Store { return w.s }

func (w *onCassandra) client(s store.Store) (*listing.Client, error) {
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks})
	if err != nil {
		return nil, err
	}
	w.maps = append(w.maps, m)
	return listing.New(mapclient.With(s, m), listing.Options{})
}

// settle flushes all tables, and waits until no file is being compacted. After a minute, settle waits no longer and
// succeeds, as the remaining compactions disturb all layouts alike.
func (w *onCassandra) settle(ctx context.Context) error {
	if err := w.spill(ctx); err != nil {
		return err
	}
	const looks = 60
	for idle, look := 0, 0; idle < 2 && look < looks; look++ {
		var name string
		idle++
		iter := w.raw.Query("SELECT keyspace_name FROM system_views.sstable_tasks").WithContext(ctx).Iter()
		for iter.Scan(&name) {
			if name == w.o.Keyspace {
				idle = 0
			}
		}
		if err := errors.Join(iter.Close(), pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// tables returns the names of the tables that hold rows: the table of the store, and those of layouts with their own
// tables.
func (w *onCassandra) tables(ctx context.Context) (names []string, err error) {
	iter := w.raw.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", w.o.Keyspace).
		WithContext(ctx).Iter()
	var name string
	for iter.Scan(&name) {
		if name == "rows" || cqltables.IsTable(name) {
			names = append(names, name)
		}
	}
	return names, iter.Close()
}

// alter sets an option, given as CQL, on all tables that hold rows.
func (w *onCassandra) alter(ctx context.Context, option string) error {
	names, err := w.tables(ctx)
	for _, name := range names {
		err = errors.Join(err, w.raw.Query(fmt.Sprintf("ALTER TABLE %s WITH %s", name, option)).WithContext(ctx).Exec())
	}
	return err
}

// spill makes the node flush its tables, by a table option, as the program nodetool would take a minute of processor
// time. The pause of 5 s is far above the flush period of 1 s. Rows that are not flushed by then are read from memory,
// which is no error.
func (w *onCassandra) spill(ctx context.Context) error {
	const period, wait = time.Second, 5 * time.Second
	if err := w.alter(ctx, fmt.Sprintf("memtable_flush_period_in_ms = %d", period.Milliseconds())); err != nil {
		return err
	}
	return errors.Join(pause(ctx, wait), w.alter(ctx, "memtable_flush_period_in_ms = 0"))
}

// compacting turns compaction on or off for the table in which all sets but feeds lie.
func (w *onCassandra) compacting(ctx context.Context, on bool) error {
	return w.raw.Query(fmt.Sprintf("ALTER TABLE rows WITH compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4', 'enabled': '%t'}", on)).WithContext(ctx).Exec()
}

func (w *onCassandra) bare() bare { return w }

// bareIDs returns the bucket and the partition of a set in the database without a layout. They are in the same table as
// the layouts.
func (w *onCassandra) bareIDs(set string) (bucket, partition gocql.UUID) {
	return gocql.UUID(bucketOf(set, "bare")), gocql.UUID{15: 1}
}

func (w *onCassandra) load(ctx context.Context, set string, entries []layouts.Entry) error {
	bucket, partition := w.bareIDs(set)
	now := time.Now().UnixMicro()
	for some := range slices.Chunk(inOrder(entries), bareBatch) {
		b := w.raw.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
		for _, e := range some {
			b.Query("INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?", bucket,
				partition, e.Key, e.Value, now)
			now++
		}
		if err := w.raw.ExecuteBatch(b); err != nil {
			return err
		}
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
	statement, args := "SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key > ?",
		[]any{bucket, partition, append([]byte{}, after...)}
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
