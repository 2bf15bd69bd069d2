package cassandrastore

import (
	"bytes"
	"context"
	"slices"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Scan lists a table's keys in the order of their tokens.
func (s *Store) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	err := store.CheckTable(t)
	if err == nil {
		err = store.CheckLimit(limit)
	}
	if err != nil {
		return nil, s.fail(ctx, err, "scan", t)
	}
	e := enumeration[[]byte]{
		table: t.String(), columns: "key", places: "?", equal: bytes.Equal,
		scan: func(iter *gocql.Iter) ([]byte, bool) {
			var key []byte
			ok := iter.Scan(&key)
			return key, ok
		},
	}
	if after != nil {
		e.after, e.afterValues = after, []any{after}
	}
	keys, err := e.page(ctx, s, limit)
	return keys, s.fail(ctx, err, "scan", t)
}

// Partitions lists partitions in the order of their tokens.
func (s *Store) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	if err := store.CheckLimit(limit); err != nil {
		return nil, s.fail(ctx, err, "list", text("partitions"))
	}
	e := enumeration[store.Partition]{
		table: rowsTable, columns: "bucket, partition", places: "?, ?",
		equal: func(a, b store.Partition) bool { return a == b },
		scan: func(iter *gocql.Iter) (store.Partition, bool) {
			var bucket, partition gocql.UUID
			ok := iter.Scan(&bucket, &partition)
			return store.Partition{Bucket: store.BucketID(bucket), ID: store.PartitionID(partition)}, ok
		},
	}
	if after != (store.Partition{}) {
		e.after, e.afterValues = after, []any{gocql.UUID(after.Bucket), gocql.UUID(after.ID)}
	}
	partitions, err := e.page(ctx, s, limit)
	return partitions, s.fail(ctx, err, "list", text("partitions"))
}

// enumeration goes over a table's partition keys in the order of their tokens.
type enumeration[K any] struct {
	table, columns, places string
	after                  K
	afterValues            []any // nil to begin
	equal                  func(a, b K) bool
	scan                   func(*gocql.Iter) (K, bool)
}

// page reads one page. It starts at the token of after, not behind it: two keys
// may share a token (anybody can make two names that do), and a page may end
// between them. Where that can't be read for tombstones it goes on behind the
// token, and in smaller steps.
func (e *enumeration[K]) page(ctx context.Context, s *Store, limit int) ([]K, error) {
	fetch, behind := limit+1, false
	for {
		keys, err := e.read(ctx, s, fetch, behind)
		switch {
		case err == nil:
			if i := slices.IndexFunc(keys, func(k K) bool { return e.equal(k, e.after) }); i >= 0 && e.afterValues != nil {
				if i == len(keys)-1 && len(keys) == fetch {
					fetch *= 2
					continue
				}
				keys = keys[i+1:]
			}
			return keys[:min(limit, len(keys))], nil
		case !readFailed(err):
			return nil, err
		case !behind && e.afterValues != nil:
			behind = true
		case fetch == 1:
			return nil, store.Errorf(store.TooMuchDeadData, "replicas can't read the next key of %s: too many tombstones: %w", e.table, err)
		default:
			fetch = max(1, fetch/4)
		}
	}
}

func (e *enumeration[K]) read(ctx context.Context, s *Store, fetch int, behind bool) (keys []K, err error) {
	statement := "SELECT DISTINCT " + e.columns + " FROM " + e.table
	if e.afterValues != nil {
		operator := ">="
		if behind {
			operator = ">"
		}
		statement += " WHERE token(" + e.columns + ") " + operator + " token(" + e.places + ")"
	}
	values := append(slices.Clone(e.afterValues), fetch)
	err = s.retry(ctx, s.o.ReadTimeout, func(ctx context.Context) error {
		keys = nil
		iter := s.session.Query(statement+" LIMIT ?", values...).WithContext(ctx).Consistency(s.levels.readRegisters).Iter()
		for {
			key, ok := e.scan(iter)
			if !ok {
				return iter.Close()
			}
			keys = append(keys, key)
		}
	})
	return keys, err
}
