// Package cqltables is a layout for feeds with a table for each month: PRIMARY KEY ((bucket), id) WITH CLUSTERING ORDER
// BY (id DESC). A month that nobody reads any more is archived as a file, and its table is dropped, so no tombstone is
// ever written. The price is that someone has to create tables ahead of time and to drop them later, and that a
// bucket's month is one partition.
package cqltables

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// Layout is the feed of one bucket, with a table for each month. The methods of a Layout are safe for concurrent use.
type Layout struct {
	session  *gocql.Session
	keyspace string
	bucket   string
	meter    *layouts.Meter
	stamps   *timestamps.Source

	mu     sync.RWMutex
	tables []string // that exist, the newest first
}

const tablePrefix = "feed_"

// table returns the name of the table for a moment, e.g. feed_202603 for March 2026. The names sort by time.
func table(at time.Time) string { return tablePrefix + at.UTC().Format("200601") }

// IsTable reports whether name is the name of a table of this layout.
func IsTable(name string) bool { return strings.HasPrefix(name, tablePrefix) }

// Open finds the existing tables of the layout in a keyspace, and returns the feed of a bucket. The session uses the
// same keyspace. meter counts what is read, and may be nil.
func Open(ctx context.Context, session *gocql.Session, keyspace, bucket string, meter *layouts.Meter) (*Layout, error) {
	l := &Layout{session: session, keyspace: keyspace, bucket: bucket, meter: meter, stamps: timestamps.New(nil)}
	return l, l.refresh(ctx)
}

// refresh reads from Cassandra which tables of the layout exist.
func (l *Layout) refresh(ctx context.Context) error {
	iter := l.session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", l.keyspace).
		WithContext(ctx).Iter()
	var names []string
	var name string
	for iter.Scan(&name) {
		if IsTable(name) {
			names = append(names, name)
		}
	}
	if err := iter.Close(); err != nil {
		return err
	}
	slices.Sort(names)
	slices.Reverse(names)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables = names
	return nil
}

// Create creates the tables of all months between the moments from and to. The tables must exist before the first put
// of a month, as a put into a month without a table fails.
func (l *Layout) Create(ctx context.Context, from, to time.Time) error {
	from = from.UTC()
	for at := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC); !at.After(to); at = at.AddDate(0, 1, 0) {
		if err := l.session.Query("CREATE TABLE IF NOT EXISTS " + table(at) + ` (bucket text, id bigint, v blob, PRIMARY KEY ((bucket), id))
			WITH CLUSTERING ORDER BY (id DESC) AND compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}
			AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}`).WithContext(ctx).Exec(); err != nil {
			return err
		}
	}
	return l.refresh(ctx)
}

// newestFirst returns the names of the existing tables, the newest first, beginning with the table called from. If from
// is "", the result has all tables.
func (l *Layout) newestFirst(from string) []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if from == "" {
		return l.tables
	}
	for i, name := range l.tables {
		if name <= from {
			return l.tables[i:]
		}
	}
	return nil
}

// of returns the name of the table for a key, and the key's id. If the table does not exist, the error is NotFound.
func (l *Layout) of(key []byte) (string, layouts.Snowflake, error) {
	id, err := layouts.SnowflakeOf(key)
	if err != nil {
		return "", 0, err
	}
	name := table(id.Time())
	if tables := l.newestFirst(name); len(tables) == 0 || tables[0] != name {
		return "", 0, store.Errorf(store.NotFound, "there is no table for %s: create it ahead",
			id.Time().Format("2006-01"))
	}
	return name, id, nil
}

func insert(table string) string {
	return "INSERT INTO " + table + " (bucket, id, v) VALUES (?, ?, ?) USING TIMESTAMP ?"
}

// Put stores one entry. If the month of the key has no table, Put returns an error.
func (l *Layout) Put(ctx context.Context, key, value []byte) error {
	name, id, err := l.of(key)
	if err != nil {
		return err
	}
	ts, err := l.stamps.Next(ctx, 1)
	if err != nil {
		return err
	}
	return l.session.Query(insert(name), l.bucket, int64(id), notNil(value), int64(ts)).WithContext(ctx).Exec()
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// batchRows is the largest number of rows of a batch, which is for one partition. batchesOnce is the number of batches
// that are sent at once.
const batchRows, batchesOnce = 200, 4

// Load stores the entries in batches. All entries of a batch are of one month.
func (l *Layout) Load(ctx context.Context, entries []layouts.Entry) error {
	first, err := l.stamps.Next(ctx, max(len(entries), 1))
	if err != nil {
		return err
	}
	by := map[string][]gocql.BatchEntry{}
	for i, e := range entries {
		name, id, err := l.of(e.Key)
		if err != nil {
			return err
		}
		by[name] = append(by[name],
			gocql.BatchEntry{
				Stmt: insert(name), Args: []any{l.bucket, int64(id), notNil(e.Value), int64(first) + int64(i)},
			})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(batchesOnce)
	for _, rows := range by {
		for some := range slices.Chunk(rows, batchRows) {
			g.Go(func() error {
				b := l.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
				b.Entries = some
				return l.session.ExecuteBatch(b)
			})
		}
	}
	return g.Wait()
}

// Get reads one entry. The result found is false if the entry, or the table of the entry's month, does not exist.
func (l *Layout) Get(ctx context.Context, key []byte) (value []byte, found bool, err error) {
	name, id, err := l.of(key)
	if errors.Is(err, store.NotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	err = l.session.Query("SELECT v FROM "+name+" WHERE bucket = ? AND id = ?", l.bucket, int64(id)).WithContext(ctx).
		Scan(&value)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, false, nil
	}
	l.count([]layouts.Entry{{Key: key, Value: value}})
	return value, err == nil, err
}

func (l *Layout) count(entries []layouts.Entry) {
	if l.meter == nil {
		return
	}
	size := 0
	for _, e := range entries {
		size += len(e.Key) + len(e.Value)
	}
	l.meter.Add(len(entries), size)
}

// newestID is an id above all ids, for reading from the newest entry on.
const newestID = layouts.Snowflake(1<<63 - 1)

// page returns the newest entries of one table whose ids are below `before`, at most limit entries.
func (l *Layout) page(ctx context.Context, table string, before layouts.Snowflake, limit int) ([]layouts.Entry, error) {
	iter := l.session.Query("SELECT id, v FROM "+table+" WHERE bucket = ? AND id < ? LIMIT ?", l.bucket, int64(before),
		limit).WithContext(ctx).Iter()
	entries := make([]layouts.Entry, 0, iter.NumRows())
	for {
		var id int64
		var value []byte
		if !iter.Scan(&id, &value) {
			break
		}
		entries = append(entries, layouts.Entry{Key: binary.BigEndian.AppendUint64(nil, uint64(id)), Value: value})
	}
	l.count(entries)
	return entries, iter.Close()
}

// List returns a page of entries, the newest first. It reads the table of the month of q.After, and then as many older
// tables as the page needs. Queries in ascending order, or with a prefix, fail with ErrCannot.
func (l *Layout) List(ctx context.Context, q layouts.Query) (items []layouts.Item, err error) {
	_, limit, err := q.Bounds()
	if err != nil {
		return nil, err
	}
	if !q.Reverse || len(q.Prefix) > 0 {
		return nil, fmt.Errorf("%w: list anything but the newest first", layouts.ErrCannot)
	}
	before, from := newestID, ""
	if len(q.After) > 0 {
		if before, err = layouts.SnowflakeOf(q.After); err != nil {
			return nil, err
		}
		from = table(before.Time())
	}
	for _, name := range l.newestFirst(from) {
		entries, err := l.page(ctx, name, before, limit-len(items))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			items = append(items, layouts.Item{Entry: e})
		}
		if len(items) == limit {
			break
		}
	}
	return items, nil
}

// through reads all entries of one table, the newest first, and calls `each` with every page.
func (l *Layout) through(ctx context.Context, table string, each func([]layouts.Entry) error) error {
	for before := newestID; ; {
		page, err := l.page(ctx, table, before, layouts.ScanPage)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := each(page); err != nil || len(page) < layouts.ScanPage {
			return err
		}
		before = layouts.Snowflake(binary.BigEndian.Uint64(page[len(page)-1].Key))
	}
}

// Scan reads all entries of the bucket, several tables at once, and calls `each` with every page. readers is the number
// of tables that are read at the same time.
func (l *Layout) Scan(ctx context.Context, readers int, each func([]layouts.Entry) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for _, name := range l.newestFirst("") {
		g.Go(func() error { return l.through(ctx, name, each) })
	}
	return g.Wait()
}

// Partition returns the name of the table for a key, as each table has one partition for a bucket.
func (l *Layout) Partition(_ context.Context, key []byte) (string, error) {
	name, _, err := l.of(key)
	return name, err
}

// archived is one line of an archive file: an entry as JSON.
type archived struct {
	ID    layouts.Snowflake `json:"id"`
	Value []byte            `json:"value"`
}

// Archive writes a month's entries to out, the newest first, as lines of JSON compressed by gzip. rows is the number of
// entries. The format of the file does not matter here, as the cost is that of reading a whole table.
func (l *Layout) Archive(ctx context.Context, month time.Time, out io.Writer) (rows int, err error) {
	z := gzip.NewWriter(out)
	lines := json.NewEncoder(z)
	err = l.through(ctx, table(month), func(entries []layouts.Entry) error {
		for _, e := range entries {
			id, err := layouts.SnowflakeOf(e.Key)
			if err == nil {
				err = lines.Encode(archived{id, e.Value})
			}
			if err != nil {
				return err
			}
			rows++
		}
		return nil
	})
	return rows, errors.Join(err, z.Close())
}

// ReadArchive calls `each` with every entry of an archive, as Archive has written it.
func ReadArchive(in io.Reader, each func(layouts.Entry) error) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for lines := json.NewDecoder(z); ; {
		var a archived
		err := lines.Decode(&a)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(layouts.Entry{Key: a.ID.Key(), Value: a.Value})
		}
		if err != nil {
			return err
		}
	}
}

// Drop drops the table of a month, for all buckets.
func (l *Layout) Drop(ctx context.Context, month time.Time) error {
	if err := l.session.Query("DROP TABLE IF EXISTS " + table(month)).WithContext(ctx).Exec(); err != nil {
		return err
	}
	return l.refresh(ctx)
}
