package cassandrastore

import (
	"context"
	"slices"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// mostFailedReads bounds what one slice spends on finding its way around dead
// data; what it learned serves the next one.
const mostFailedReads = 200

// Slice reads one page, with one request in the usual case.
//
// A request reads at most about store.MaxPageBytes: how many rows that are is
// learned per partition, so a page may end early, with More set. All rows of a
// page are from one request, hence of one moment.
//
// Replicas refuse a read that meets more than tombstone_failure_threshold dead
// rows (100,000). Then the interval is halved, and halved again, until its
// parts can be read; the cuts are remembered, so that the next slice reads in
// parts from the start. An empty part is read again each time, since somebody
// may have put a row there meanwhile. Such a page may show a part of a Put
// whose rows lie on both sides of a cut.
func (r *rows) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	err := store.CheckSlice(b, o)
	if err == nil {
		err = r.s.usable(ctx)
	}
	if err != nil || emptyBounds(b) {
		return store.Page{}, fail(ctx, err, "slice", p.String())
	}
	known := r.memory.of(p)
	parts := inParts(b, known.cuts())
	if o.Reverse {
		slices.Reverse(parts)
	}
	for failed := 0; len(parts) > 0; {
		limit := min(o.Limit, known.rowsPerRead(r.memory))
		page, readErr := r.read1(ctx, p, parts[0], limit, o)
		switch {
		case readErr == nil:
			known.learn(r.memory, page.Rows)
			more := page.More || len(parts) > 1
			if len(page.Rows) > 0 {
				page.More = more
				return page.Page, nil
			}
			if page.More { // Rows that are no entries, and more behind them.
				parts[0] = page.rest
				continue
			}
			parts = parts[1:]
		case readFailed(readErr):
			failed++
			low, high, ok := halve(parts[0])
			if !ok || failed > mostFailedReads {
				return store.Page{}, fail(ctx, store.Errorf(store.TooMuchDeadData,
					"replicas can't read it even in small parts: too many tombstones (repair, then compact the table), or a damaged sstable (see their logs): %w", readErr), "slice", p.String())
			}
			known.cut(high.Start)
			first, second := low, high
			if o.Reverse {
				first, second = high, low
			}
			parts = append([]store.Bounds{first, second}, parts[1:]...)
		default:
			return store.Page{}, fail(ctx, readErr, "slice", p.String())
		}
	}
	return store.Page{}, nil
}

// sliceStatement selects what the options ask for. The value is always read:
// a read repairs only the columns that it selects.
func sliceStatement(where string, o store.SliceOptions) string {
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

// onePage is the page of one request. rest is what lies beyond it.
type onePage struct {
	store.Page
	rest store.Bounds
}

// read1 sends one request.
func (r *rows) read1(ctx context.Context, p store.Partition, b store.Bounds, limit int, o store.SliceOptions) (page onePage, err error) {
	where, bounds := boundsCQL(b)
	statement := sliceStatement(where, o)
	values := append([]any{gocql.UUID(p.Bucket), gocql.UUID(p.ID)}, bounds...)
	values = append(values, limit)
	err = r.s.retry(ctx, r.s.o.ReadTimeout, func(ctx context.Context) error {
		iter := r.s.session.Query(statement, values...).WithContext(ctx).Consistency(r.read).Iter()
		page.Page, page.rest = scanPage(iter, b, limit, o)
		return iter.Close()
	})
	return page, err
}

// scanPage takes rows until the page is full by bytes.
func scanPage(iter *gocql.Iter, b store.Bounds, limit int, o store.SliceOptions) (store.Page, store.Bounds) {
	rows := make([]store.Row, 0, iter.NumRows())
	var key, value view
	var ts int64
	dest := []any{&key, &value}
	if o.Timestamps {
		dest = append(dest, &ts)
	}
	seen, bytes := 0, 0
	for bytes < store.MaxPageBytes && iter.Scan(dest...) {
		seen++
		if value == nil {
			continue
		}
		bytes += len(key) + len(value)
		rows = append(rows, store.Row{Key: key, Value: value, Timestamp: store.Timestamp(ts)})
	}
	if seen > 0 {
		if o.Reverse {
			b.End = key
		} else {
			b.Start, b.StartExclusive = key, true
		}
	}
	return store.Page{Rows: rows, More: seen == limit || bytes >= store.MaxPageBytes}, b
}
