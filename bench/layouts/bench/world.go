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
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// world is a store with all that the layouts in it need.
type world interface {
	// rows is the store of a layout; it changes when the world settles or spills.
	rows(layout string) store.Store
	// client makes a client of evenkeel over a store, which may be one that counts
	// what goes to rows. The world closes it.
	client(s store.Store) (*listing.Client, error)
	// bare is the database without any layout of ours; its keys lie in one
	// partition of their own for each set.
	bare() bare
	// settle brings all that was written into files, and waits until nothing is
	// being compacted: for all layouts alike.
	settle(ctx context.Context) error
	// spill brings what was written since into files of its own.
	spill(ctx context.Context) error
	// compacting turns the compaction of files on and off, where that can be done.
	compacting(ctx context.Context, on bool) error
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

// bareBatch is how many rows the bare database is loaded with at once: as many as
// the layouts take.
const bareBatch = 200

// inOrder sorts entries by their keys; those of one key stay in their order.
func inOrder(entries []layouts.Entry) []layouts.Entry {
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b layouts.Entry) int { return bytes.Compare(a.Key, b.Key) })
	return sorted
}

// embedded is Pebble in a folder: an engine for each layout and one without any, all
// with the same options, so that what one of them holds in its cache, or has not yet
// compacted, is nothing to the others.
type embedded struct {
	dir     string
	noSync  bool
	layouts []string
	engines map[string]*pebblestore.Store // by layout
	db      *pebble.DB                    // bare
	maps    []*mapclient.Client
	// pageBytes is what a page of the bare engine took lately.
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

// Each engine may take this for its cache, and up to twice the other for what is not
// yet in files: pebblestore's own bounds.
const cacheBytes, memTableBytes = 128 << 20, 64 << 20

// folder is where an engine lies.
func (w *embedded) folder(layout string) string { return filepath.Join(w.dir, layout) }

func (w *embedded) open() (err error) {
	w.engines = map[string]*pebblestore.Store{}
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

// openEngine opens a folder of pebblestore's, or another one, without pebblestore.
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

// settle compacts each engine into one level while pebblestore does not have it, and
// opens all anew.
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

// spill opens all engines anew, which turns their logs into files.
func (w *embedded) spill(context.Context) error {
	if err := w.shut(); err != nil {
		return err
	}
	return w.open()
}

// compacting does nothing: Pebble goes on as it likes, in each engine.
func (w *embedded) compacting(context.Context, bool) error { return nil }

func (w *embedded) close() error {
	return errors.Join(w.shut(), os.RemoveAll(w.dir))
}

func (w *embedded) rows(layout string) store.Store { return w.engines[layout] }

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

// load writes batches of neighbours, as the layouts do.
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

// page copies keys and values out into memory of the page's own, which is as large as
// pages were lately, and a little larger.
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

// session is the bare driver as somebody who knows its traps would set it up.
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

// rows is one table for all layouts.
func (w *onCassandra) rows(string) store.Store { return w.s }

func (w *onCassandra) client(s store.Store) (*listing.Client, error) {
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks})
	if err != nil {
		return nil, err
	}
	w.maps = append(w.maps, m)
	return listing.New(s, m, listing.Options{})
}

// settle flushes, and waits until no file is being compacted. What still is after a
// minute goes on, which is no error: it disturbs all layouts alike.
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

// tables are those that hold rows: of the store, and of layouts with tables of their
// own.
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

// alter sets an option of all tables that hold rows.
func (w *onCassandra) alter(ctx context.Context, option string) error {
	names, err := w.tables(ctx)
	for _, name := range names {
		err = errors.Join(err, w.raw.Query(fmt.Sprintf("ALTER TABLE %s WITH %s", name, option)).WithContext(ctx).Exec())
	}
	return err
}

// spill makes the node flush, by a table option: nodetool would take a minute of a
// busy processor. The pause is far above the period; what is not flushed by then is
// read from memory, which is no error.
func (w *onCassandra) spill(ctx context.Context) error {
	const period, wait = time.Second, 5 * time.Second
	if err := w.alter(ctx, fmt.Sprintf("memtable_flush_period_in_ms = %d", period.Milliseconds())); err != nil {
		return err
	}
	return errors.Join(pause(ctx, wait), w.alter(ctx, "memtable_flush_period_in_ms = 0"))
}

// compacting turns it off for the table that all sets but feeds lie in.
func (w *onCassandra) compacting(ctx context.Context, on bool) error {
	return w.raw.Query(fmt.Sprintf("ALTER TABLE rows WITH compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4', 'enabled': '%t'}", on)).WithContext(ctx).Exec()
}

func (w *onCassandra) bare() bare { return w }

// The bare driver's partition of a set is of the same table.
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
