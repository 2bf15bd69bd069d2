// Package pglayout is the layout of a sorted listing in PostgreSQL: a b-tree on (bucket, key) and keyset paging. Many
// users choose PostgreSQL while one machine is enough.
package pglayout

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/store"
)

// CreateTable creates the table of all buckets if the table does not exist. The type bytea makes PostgreSQL order keys
// bytewise.
func CreateTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS entries (
		bucket text COLLATE "C", key bytea, value bytea NOT NULL, PRIMARY KEY (bucket, key))`)
	return err
}

// Settle vacuums and analyses the table, as autovacuum would do later. Afterwards PostgreSQL knows which pages are
// visible to all transactions, and has statistics.
func Settle(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "VACUUM ANALYZE entries")
	return err
}

// Layout is one bucket in the table of PostgreSQL.
type Layout struct {
	pool   *pgxpool.Pool
	bucket string
	cuts   [][]byte
	meter  *layouts.Meter
}

// New returns a bucket of the table that CreateTable has created. The sorted cuts divide the keys of a scan among
// several readers. Without cuts a scan has one reader. meter counts what is read, and may be nil.
func New(pool *pgxpool.Pool, bucket string, meter *layouts.Meter, cuts ...[]byte) *Layout {
	return &Layout{pool, bucket, cuts, meter}
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

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Put stores one entry, and replaces the value that the key had before.
func (l *Layout) Put(ctx context.Context, key, value []byte) error {
	_, err := l.pool.Exec(ctx,
		"INSERT INTO entries (bucket, key, value) VALUES ($1, $2, $3) ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value", l.bucket, key, notNil(value))
	return err
}

// loadRows is the largest number of rows that one statement of Load inserts.
const loadRows = 1000

// Load stores entries, a thousand per statement.
func (l *Layout) Load(ctx context.Context, entries []layouts.Entry) error {
	for len(entries) > 0 {
		n := min(loadRows, len(entries))
		keys, values := make([][]byte, 0, n), make([][]byte, 0, n)
		at := map[string]int{} // a statement may not touch a row twice
		for _, e := range entries[:n] {
			i, twice := at[string(e.Key)]
			if twice {
				values[i] = notNil(e.Value)
				continue
			}
			at[string(e.Key)] = len(keys)
			keys, values = append(keys, e.Key), append(values, notNil(e.Value))
		}
		if _, err := l.pool.Exec(ctx, `INSERT INTO entries (bucket, key, value) SELECT $1, * FROM unnest($2::bytea[], $3::bytea[])
			ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value`, l.bucket, keys, values); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// Get reads one entry. The result found is false if the key has no entry.
func (l *Layout) Get(ctx context.Context, key []byte) (value []byte, found bool, err error) {
	err = l.pool.QueryRow(ctx, "SELECT value FROM entries WHERE bucket = $1 AND key = $2", l.bucket, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	l.count([]layouts.Entry{{Key: key, Value: value}})
	return value, err == nil, err
}

// where returns an SQL condition that limits column to the interval of keys b in this bucket. args are the arguments of
// the condition: the bucket as $1, then the bounds.
func (l *Layout) where(column string, b store.Bounds) (text string, args []any) {
	text, args = "bucket = $1", []any{l.bucket}
	if len(b.Start) > 0 {
		args = append(args, b.Start)
		op := ">="
		if b.StartExclusive {
			op = ">"
		}
		text += fmt.Sprintf(" AND %s %s $%d", column, op, len(args))
	}
	if len(b.End) > 0 {
		args = append(args, b.End)
		text += fmt.Sprintf(" AND %s < $%d", column, len(args))
	}
	return text, args
}

func (l *Layout) read(ctx context.Context, limit int, statement string, args []any) ([]layouts.Entry, error) {
	rows, err := l.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	entries := make([]layouts.Entry, 0, limit)
	for rows.Next() {
		var e layouts.Entry
		if err := rows.Scan(&e.Key, &e.Value); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	l.count(entries)
	return entries, rows.Err()
}

func (l *Layout) page(ctx context.Context, b store.Bounds, limit int, reverse bool) ([]layouts.Entry, error) {
	where, args := l.where("key", b)
	order := ""
	if reverse {
		order = " DESC"
	}
	args = append(args, limit)
	return l.read(ctx, limit, fmt.Sprintf("SELECT key, value FROM entries WHERE %s ORDER BY key%s LIMIT $%d", where,
		order, len(args)), args)
}

// List reads one page by one statement. With a delimiter the statement is a loose index scan: after each common prefix
// it seeks the first key behind the prefix.
func (l *Layout) List(ctx context.Context, q layouts.Query) ([]layouts.Item, error) {
	b, limit, err := q.Bounds()
	if err != nil || layouts.Empty(b) {
		return nil, err
	}
	var entries []layouts.Entry
	if len(q.Delimiter) == 0 {
		entries, err = l.page(ctx, b, limit, q.Reverse)
	} else {
		entries, err = l.fold(ctx, &q, b, limit)
	}
	if err != nil {
		return nil, err
	}
	items := make([]layouts.Item, len(entries))
	for i, e := range entries {
		items[i].Entry = e
		if p, folded := q.CommonPrefix(e.Key); folded {
			items[i] = layouts.Item{Entry: layouts.Entry{Key: p}, CommonPrefix: true}
		}
	}
	return items, nil
}

func (l *Layout) fold(ctx context.Context, q *layouts.Query, b store.Bounds, limit int) ([]layouts.Entry, error) {
	next := store.PrefixEnd(q.Delimiter)
	if len(next) != len(q.Delimiter) {
		return nil, fmt.Errorf("%w: fold by a delimiter that ends in 0xff", layouts.ErrCannot)
	}
	first, args := l.where("key", b)
	end := ""
	if len(b.End) > 0 {
		end = fmt.Sprintf(" AND e.key < $%d", len(args))
	}
	args = append(args, q.Delimiter, next, len(q.Prefix), limit)
	n := len(args)
	delimiter, behind, prefix := fmt.Sprintf("$%d::bytea", n-3), fmt.Sprintf("$%d::bytea", n-2),
		fmt.Sprintf("$%d::int", n-1)
	statement := fmt.Sprintf(`WITH RECURSIVE walk AS (
		(SELECT key, value FROM entries WHERE %[1]s ORDER BY key LIMIT 1)
		UNION ALL
		SELECT n.key, n.value FROM walk w, LATERAL (
			SELECT e.key, e.value FROM entries e WHERE e.bucket = $1%[2]s AND e.key >=
				CASE position(%[3]s IN substring(w.key FROM %[5]s + 1)) WHEN 0 THEN w.key || '\x00'::bytea
				ELSE substring(w.key FOR %[5]s + position(%[3]s IN substring(w.key FROM %[5]s + 1)) - 1) || %[4]s END
			ORDER BY e.key LIMIT 1) n
		) SELECT key, value FROM walk LIMIT $%[6]d`, first, end, delimiter, behind, prefix, n)
	return l.read(ctx, limit, statement, args)
}

// Scan reads all entries of the bucket, and calls `each` with every page. Each reader reads the keys between two cuts.
func (l *Layout) Scan(ctx context.Context, readers int, each func([]layouts.Entry) error) error {
	cuts := l.cuts
	if readers <= 1 {
		cuts = nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for i := range len(cuts) + 1 {
		var b store.Bounds
		if i > 0 {
			b.Start = cuts[i-1]
		}
		if i < len(cuts) {
			b.End = cuts[i]
		}
		g.Go(func() error {
			for {
				page, err := l.page(ctx, b, layouts.ScanPage, false)
				if err != nil || len(page) == 0 {
					return err
				}
				if err := each(page); err != nil || len(page) < layouts.ScanPage {
					return err
				}
				b.Start, b.StartExclusive = page[len(page)-1].Key, true
			}
		})
	}
	return g.Wait()
}

// Partition returns the same name for all keys, as all keys are in one table.
func (l *Layout) Partition(context.Context, []byte) (string, error) { return "the table", nil }
