package cassandrastore

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Slice returns one page of the rows of the partition p within the interval of keys b, usually by one request to
// Cassandra. It implements store.Rows.
//
// A request reads about storekit.PageBytes bytes at most. Its row limit is estimated from earlier pages of the
// partition. So a page may end early, with More set. All rows of a page are from one request, and so from one moment.
func (r *rows) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	err := storekit.CheckSlice(b, o)
	if err == nil {
		err = r.s.usable(ctx)
	}
	var page store.Page
	if err == nil && !emptyBounds(b) {
		known := r.memory.of(p)
		page, err = sliceInParts(known, b, o, func(b store.Bounds) (partPage, error) {
			return r.readPart(ctx, p, b, min(o.Limit, r.memory.rowsPerRead(known, storekit.PageBytes(&o))), o)
		})
		r.memory.learn(known, page.Rows)
	}
	return page, r.s.fail(ctx, err, "slice", p)
}

// sliceStatement returns the CQL statement that reads rows of one partition in the order of their keys. The parameter
// where is the CQL condition for the key.
func sliceStatement(where string, o store.SliceOptions) string {
	// The statement always selects the value, since a read repairs only the columns that it selects.
	columns := "key, v"
	if o.Timestamps {
		columns += ", WRITETIME(v)"
	}
	order := ""
	if o.Reverse {
		order = " ORDER BY key DESC"
	}
	return "SELECT " + columns + " FROM rows WHERE bucket = ? AND partition = ?" + where + order + " LIMIT ?"
}

// readPart reads at most limit rows of the partition p, within the interval of keys b, by one request to Cassandra.
func (r *rows) readPart(
	ctx context.Context, p store.Partition, b store.Bounds, limit int, o store.SliceOptions,
) (partPage, error) {
	where, bounds := boundsCQL(b)
	statement := sliceStatement(where, o)
	values := append([]any{gocql.UUID(p.Bucket), gocql.UUID(p.ID)}, bounds...)
	values = append(values, limit)
	request := request{op: opSlice, level: r.read, limit: r.s.o.ReadTimeout}
	return retry(ctx, r.s, request, func(ctx context.Context) (partPage, error) {
		iter := r.s.session.Query(statement, values...).WithContext(ctx).Consistency(r.read).Iter()
		page := scanPage(iter, b, limit, o)
		return page, iter.Close()
	})
}

// scanPage takes rows from iter, the answer to a request for the interval of keys b. It ends when the page has as many
// bytes as the options o allow, or when iter ends. limit is the row limit of the request. The result also has the
// interval of keys behind the page.
func scanPage(iter *gocql.Iter, b store.Bounds, limit int, o store.SliceOptions) partPage {
	page := partPage{rest: b}
	page.Rows = make([]store.Row, 0, iter.NumRows())
	var key, value view
	var ts int64
	dest := []any{&key, &value}
	if o.Timestamps {
		dest = append(dest, &ts)
	}
	seen, bytes, most := 0, 0, storekit.PageBytes(&o)
	for bytes < most && iter.Scan(dest...) {
		seen++
		if value == nil {
			continue // a row that evenkeel has not written
		}
		bytes += len(key) + len(value)
		page.Rows = append(page.Rows, store.Row{Key: key, Value: value, Timestamp: store.Timestamp(ts)})
	}
	page.More = seen == limit || bytes >= most
	switch {
	case seen == 0:
	case o.Reverse:
		page.rest.End = key
	default:
		page.rest.Start, page.rest.StartExclusive = key, true
	}
	return page
}
