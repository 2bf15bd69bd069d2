package cassandrastore

import (
	"cmp"
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// rows reads and writes the rows of the store in Cassandra, with one consistency level for reads and one for writes. It
// implements store.Rows.
type rows struct {
	s           *database
	read, write gocql.Consistency
	memory      *memory
}

const (
	putStatement    = "INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
	deleteStatement = "DELETE FROM rows USING TIMESTAMP ? WHERE bucket = ? AND partition = ? AND key = ?"
	getStatement    = "SELECT v, WRITETIME(v) FROM rows WHERE bucket = ? AND partition = ? AND key = ?"
	removeStatement = "DELETE FROM rows USING TIMESTAMP ? WHERE bucket = ? AND partition = ?"
)

// exec runs a CQL statement that writes, with the given values, at the given consistency level. If an attempt fails,
// exec may run the statement again, which must be harmless: each attempt has the same timestamp.
func (s *database) exec(
	ctx context.Context, op operation, level gocql.Consistency, statement string, values ...any,
) error {
	r := request{op: op, level: level, limit: s.o.WriteTimeout}
	_, err := retry(ctx, s, r, func(ctx context.Context) (struct{}, error) {
		q := s.session.Query(statement, values...)
		mine := q.WithContext(ctx) // a copy: the first goes back into the driver's pool
		q.Release()
		return struct{}{}, mine.Consistency(level).Exec()
	})
	return err
}

// Put writes rows of the partition p as one write, so that reads see all of the rows or none. It never splits the rows:
// 100 to 200 rows are the fastest, and many more cost the servers memory. It implements store.Rows.
func (r *rows) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	// The write is one mutation, a single insert or an unlogged batch, which a replica applies as a whole.
	err := storekit.CheckRows(rows)
	if err == nil {
		err = r.s.usable(ctx)
	}
	switch {
	case err != nil:
	case len(rows) == 0:
		return nil
	case len(rows) == 1:
		row := &rows[0]
		err = r.s.exec(
			ctx, opPut, r.write, putStatement, gocql.UUID(p.Bucket), gocql.UUID(p.ID), row.Key, row.Value,
			int64(row.Timestamp),
		)
	default:
		entries := batchEntries(p, rows)
		request := request{op: opBatch, level: r.write, limit: r.s.o.WriteTimeout}
		_, err = retry(ctx, r.s, request, func(ctx context.Context) (struct{}, error) {
			b := r.s.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
			b.SetConsistency(r.write)
			b.Entries = entries
			return struct{}{}, r.s.session.ExecuteBatch(b)
		})
	}
	return r.s.fail(ctx, err, "put", p)
}

// Delete hides the row with the given key in the partition p by a row tombstone with the timestamp ts. It implements
// store.Rows.
func (r *rows) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	err := cmp.Or(storekit.CheckKey(key), storekit.CheckTimestamp(ts))
	if err == nil {
		err = r.s.exec(ctx, opDelete, r.write, deleteStatement, int64(ts), gocql.UUID(p.Bucket), gocql.UUID(p.ID), key)
	}
	return r.s.fail(ctx, err, "delete", p)
}

// Get returns the row with the given key in the partition p, with its timestamp. The bool is false if there is no such
// row. It implements store.Rows.
func (r *rows) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	// The value column is always selected: a read repairs only the columns that it selects, and a row must be repaired
	// as a whole.
	err := storekit.CheckKey(key)
	if err != nil {
		return store.Row{}, false, r.s.fail(ctx, err, "get", p)
	}
	type cell struct {
		value view
		ts    *int64
	}
	request := request{op: opGet, level: r.read, limit: r.s.o.ReadTimeout}
	c, err := retry(ctx, r.s, request, func(ctx context.Context) (c cell, err error) {
		q := r.s.session.Query(getStatement, gocql.UUID(p.Bucket), gocql.UUID(p.ID), key)
		iter := q.WithContext(ctx).Consistency(r.read).Iter()
		iter.Scan(&c.value, &c.ts)
		return c, iter.Close()
	})
	if err != nil || c.value == nil || c.ts == nil {
		return store.Row{}, false, r.s.fail(ctx, err, "get", p)
	}
	// The caller's key may change after the call.
	return store.Row{Key: append([]byte(nil), key...), Value: c.value, Timestamp: store.Timestamp(*c.ts)}, true, nil
}

// Remove hides the rows of the partition p within the interval of keys b whose timestamps are not above ts. It writes a
// range tombstone or, if b contains every key, a partition tombstone. After a partition tombstone, reads of the
// partition are cheap at once. A range tombstone slows down reads until compaction, except reads that start behind it.
// It implements store.Rows.
func (r *rows) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	err := cmp.Or(storekit.CheckBounds(b), storekit.CheckTimestamp(ts))
	if err == nil {
		err = r.s.usable(ctx)
	}
	if err == nil && !emptyBounds(b) {
		where, values := boundsCQL(b)
		if len(b.Start) == 0 && len(b.End) == 0 {
			where, values = "", nil
		}
		values = append([]any{int64(ts), gocql.UUID(p.Bucket), gocql.UUID(p.ID)}, values...)
		err = r.s.exec(ctx, opRemove, r.write, removeStatement+where, values...)
	}
	return r.s.fail(ctx, err, "remove", p)
}

// emptyBounds reports whether the interval b contains no key, since its end is not above its start.
func emptyBounds(b store.Bounds) bool {
	return len(b.End) > 0 && string(b.Start) >= string(b.End)
}

// boundsCQL returns the condition of a CQL statement that restricts the key to the interval b, and the values for the
// condition. The condition always has a lower bound, even if it is the empty key: with a lower bound a read skips
// tombstones before its start.
func boundsCQL(b store.Bounds) (where string, values []any) {
	where, values = " AND key >= ?", []any{b.Start}
	if b.Start == nil {
		values[0] = []byte{} // nil would be a null
	}
	if b.StartExclusive && len(b.Start) > 0 {
		where = " AND key > ?"
	}
	if len(b.End) > 0 {
		where, values = where+" AND key < ?", append(values, b.End)
	}
	return where, values
}

// view is the value of a column in memory of the server's response, without a copy. nil stands for null. The driver
// does not reuse the memory.
type view []byte

// UnmarshalCQL sets the view to data, the bytes of a column, without a copy. It implements gocql.Unmarshaler.
func (v *view) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*v = data
	return nil
}
