package cassandrastore

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Scan returns a page of at most limit keys of the registers in table t, which follow the key after (nil for the first
// page). The order is that of Cassandra's tokens (hashes of the keys), not of the bytes. It implements store.Registers.
func (s *database) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	err := cmp.Or(storekit.CheckTable(t), storekit.CheckLimit(limit))
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

// Partitions returns a page of at most limit partitions that have rows, which follow the partition after (zero for the
// first page). The order is that of Cassandra's tokens, which are hashes of the addresses. It implements
// store.PartitionLister.
func (s *database) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	if err := storekit.CheckLimit(limit); err != nil {
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
		below: boundsCQL,
	}
	if after != (store.Partition{}) {
		e.after, e.afterValues = after, []any{gocql.UUID(after.Bucket), gocql.UUID(after.ID)}
	}
	partitions, err := e.page(ctx, s, limit)
	return partitions, s.fail(ctx, err, "list", text("partitions"))
}

// enumeration lists the partition keys (of type K) of one Cassandra table, page by page. The keys are in the order of
// their tokens, which are hashes of the keys.
type enumeration[K any] struct {
	table, columns, places string
	after                  K
	afterValues            []any // the columns of after; nil for the first page
	equal                  func(a, b K) bool
	scan                   func(*gocql.Iter) (K, bool)
	// below returns the CQL condition, with its values, for an interval of the rows of each key; nil if keys have few
	// rows.
	below func(store.Bounds) (where string, values []any)
}

// page returns the next partition keys of a table, at most limit. They follow the key e.after in the order of tokens,
// which are hashes of the keys. If too many tombstones make a read fail, page reads fewer keys at a time. At last it
// calls search.
func (e *enumeration[K]) page(ctx context.Context, s *database, limit int) ([]K, error) {
	// The first read starts at the token of e.after, not behind it: two keys may have the same token (such keys are
	// easily made), and the last page may have ended between them. If too many tombstones make that read fail, the next
	// read starts behind the token.
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
		case fetch == 1 && e.below != nil:
			return e.search(ctx, s, limit)
		case fetch == 1:
			return nil, store.Errorf(
				store.TooMuchDeadData, "replicas can't read the next key of %s: too many tombstones: %w", e.table, err,
			)
		default:
			fetch = max(1, fetch/4)
		}
	}
}

func (e *enumeration[K]) read(ctx context.Context, s *database, fetch int, behind bool) (keys []K, err error) {
	statement := "SELECT DISTINCT " + e.columns + " FROM " + e.table
	if e.afterValues != nil {
		operator := ">="
		if behind {
			operator = ">"
		}
		statement += " WHERE token(" + e.columns + ") " + operator + " token(" + e.places + ")"
	}
	return e.query(ctx, s, statement+" LIMIT ?", append(slices.Clone(e.afterValues), fetch)...)
}

func (e *enumeration[K]) query(ctx context.Context, s *database, statement string, values ...any) ([]K, error) {
	level := s.levels.readRegisters
	r := request{op: opScan, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (keys []K, err error) {
		iter := s.session.Query(statement, values...).WithContext(ctx).Consistency(level).Iter()
		for {
			key, ok := e.scan(iter)
			if !ok {
				return keys, iter.Close()
			}
			keys = append(keys, key)
		}
	})
}

// search returns the next partition keys of a table (at most limit). It is slower than page, and is called if too many
// dead rows make ordinary reads fail. Keys that have only dead rows are left out.
func (e *enumeration[K]) search(ctx context.Context, s *database, limit int) ([]K, error) {
	// By bisection search finds the least token (hash of a key) behind e.after such that a read up to the token returns
	// keys or fails. If the read fails, the rows of the token are read in smaller intervals.
	from, values := "token("+e.columns+") > token("+e.places+")", e.afterValues
	if values == nil {
		from = "token(" + e.columns + ") >= ?"
		values = []any{int64(math.MinInt64)}
	}
	upTo := func(end int64, limit int) ([]K, error) {
		return e.query(
			ctx,
			s,
			"SELECT DISTINCT "+e.columns+" FROM "+e.table+" WHERE "+from+" AND token("+e.columns+") <= ? LIMIT ?",
			append(slices.Clone(values), end, limit)...)
	}
	for {
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		for low < high {
			middle := low + int64(uint64(high-low)/2)
			keys, err := upTo(middle, 1)
			switch {
			case err != nil && !readFailed(err):
				return nil, err
			case err == nil && len(keys) == 0:
				low = middle + 1
			default:
				high = middle
			}
		}
		keys, err := upTo(high, limit)
		if readFailed(err) {
			keys, err = e.at(ctx, s, high)
		}
		if err != nil || len(keys) > 0 || high == math.MaxInt64 {
			return keys, err
		}
		from, values = "token("+e.columns+") > ?", []any{high}
	}
}

// at returns the partition keys with the given token (hash of a key) that have a live row. There is rarely more than
// one key. The rows are read in intervals that are small enough for the replicas, which refuse reads across too many
// tombstones.
func (e *enumeration[K]) at(ctx context.Context, s *database, token int64) (keys []K, err error) {
	todo := []store.Bounds{{}}
	for failed := 0; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		where, bounds := e.below(b)
		some, err := e.query(
			ctx,
			s,
			"SELECT "+e.columns+" FROM "+e.table+" WHERE token("+e.columns+") >= ? AND token("+e.columns+") <= ?"+where+
				" PER PARTITION LIMIT 1 ALLOW FILTERING",
			append([]any{token, token}, bounds...)...)
		low, high, ok := halve(b)
		switch {
		case err == nil:
			for _, key := range some {
				if !slices.ContainsFunc(keys, func(k K) bool { return e.equal(k, key) }) {
					keys = append(keys, key)
				}
			}
		case !readFailed(err):
			return nil, err
		case !ok || failed >= mostFailedReads:
			return nil, store.Errorf(
				store.TooMuchDeadData, "replicas can't read the next key of %s even in small parts: %w", e.table, err,
			)
		default:
			failed++
			todo = append(todo, high, low)
		}
	}
	return keys, nil
}
