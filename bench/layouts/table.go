package layouts

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// table is the rows of one bucket in a store: what all layouts over the contract
// begin with.
type table struct {
	rows   store.Rows
	bucket store.BucketID
	stamps *timestamps.Source
}

func newTable(rows store.Rows, bucket store.BucketID) table {
	return table{rows: rows, bucket: bucket, stamps: timestamps.New(nil)}
}

func (t *table) at(p store.PartitionID) store.Partition {
	return store.Partition{Bucket: t.bucket, ID: p}
}

func (t *table) put(ctx context.Context, p store.PartitionID, key, value []byte) error {
	ts, err := t.stamps.Next(ctx, 1)
	if err != nil {
		return err
	}
	return t.rows.Put(ctx, t.at(p), store.Row{Key: key, Value: notNil(value), Timestamp: ts})
}

func (t *table) get(ctx context.Context, p store.PartitionID, key []byte) ([]byte, bool, error) {
	row, found, err := t.rows.Get(ctx, t.at(p), key)
	return row.Value, found, err
}

// notNil: a row's value is never nil.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// Batches of one partition: so many rows and bytes are what Cassandra takes
// fastest, so many at once.
const (
	batchRows   = 200
	batchBytes  = 1 << 20
	batchesOnce = 4
)

// load stores entries in batches of one partition each.
func (t *table) load(ctx context.Context, entries []Entry, place func(key []byte) store.PartitionID) error {
	first, err := t.stamps.Next(ctx, max(len(entries), 1))
	if err != nil {
		return err
	}
	by := map[store.PartitionID][]store.Row{}
	for i, e := range entries {
		p := place(e.Key)
		by[p] = append(by[p], store.Row{Key: e.Key, Value: notNil(e.Value), Timestamp: first + store.Timestamp(i)})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(batchesOnce)
	for p, rows := range by {
		// As evenkeel's client does: neighbours are written together.
		slices.SortStableFunc(rows, func(a, b store.Row) int { return bytes.Compare(a.Key, b.Key) })
		for len(rows) > 0 {
			n, size := 0, 0
			for n < len(rows) && n < batchRows && (n == 0 || size < batchBytes) {
				size += len(rows[n].Key) + len(rows[n].Value)
				n++
			}
			batch := rows[:n]
			rows = rows[n:]
			g.Go(func() error { return t.rows.Put(ctx, t.at(p), batch...) })
		}
	}
	return g.Wait()
}

// slice reads up to limit rows of one partition, over as many requests as their
// bytes need. More says that there may be rows beyond them.
func (t *table) slice(
	ctx context.Context, p store.PartitionID, b store.Bounds, limit int, reverse bool,
) (page store.Page, err error) {
	for !empty(b) && limit > len(page.Rows) {
		next, err := t.rows.Slice(ctx, t.at(p), b, store.SliceOptions{Limit: limit - len(page.Rows), Reverse: reverse})
		if err != nil {
			return page, err
		}
		page.More = next.More
		if page.Rows == nil {
			page.Rows = next.Rows
		} else {
			page.Rows = append(page.Rows, next.Rows...)
		}
		if !next.More {
			return page, nil
		}
		b = beyond(b, page.Rows[len(page.Rows)-1].Key, reverse)
	}
	return page, nil
}

// beyond is what is left of b after key.
func beyond(b store.Bounds, key []byte, reverse bool) store.Bounds {
	if reverse {
		b.End = key
	} else {
		b.Start, b.StartExclusive = key, true
	}
	return b
}

// through reads all of one partition, in pages.
func (t *table) through(ctx context.Context, p store.PartitionID, b store.Bounds, each func([]Entry) error) error {
	for !empty(b) {
		page, err := t.rows.Slice(ctx, t.at(p), b, store.SliceOptions{Limit: ScanPage})
		if err != nil {
			return err
		}
		if len(page.Rows) > 0 {
			if err := each(entriesOf(page.Rows)); err != nil {
				return err
			}
			b = beyond(b, page.Rows[len(page.Rows)-1].Key, false)
		}
		if !page.More {
			return nil
		}
	}
	return nil
}

func entriesOf(rows []store.Row) []Entry {
	entries := make([]Entry, len(rows))
	for i := range rows {
		entries[i] = Entry{Key: rows[i].Key, Value: rows[i].Value}
	}
	return entries
}

func itemsOf(rows []store.Row) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i].Key, items[i].Value = rows[i].Key, rows[i].Value
	}
	return items
}

// sliceFunc reads up to limit rows within bounds, in order.
type sliceFunc func(ctx context.Context, b store.Bounds, limit int, reverse bool) ([]store.Row, error)

// list answers a query over rows in order: straight, or by a skip-scan.
func list(ctx context.Context, q *Query, slice sliceFunc) ([]Item, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	b := q.bounds()
	if empty(b) {
		return nil, nil
	}
	if len(q.Delimiter) == 0 {
		rows, err := slice(ctx, b, q.limit(), q.Reverse)
		return itemsOf(rows), err
	}
	return skipScan(ctx, q, b, slice)
}

// The smallest slice of a skip-scan, and the one that it begins with.
const (
	minSkip   = 2
	firstSkip = 64
)

// skipScan jumps over the keys of a common prefix as soon as it meets one. Slices
// grow where keys stand for themselves, and shrink where most of one was of no
// use.
func skipScan(ctx context.Context, q *Query, b store.Bounds, slice sliceFunc) (items []Item, err error) {
	size := firstSkip
	for !empty(b) && len(items) < q.limit() {
		size = min(size, store.MaxPageRows)
		rows, err := slice(ctx, b, size, false)
		if err != nil {
			return nil, err
		}
		used := 0
		var passed []byte // the common prefix that the last rows lie under
		for _, r := range rows {
			if passed != nil && bytes.HasPrefix(r.Key, passed) {
				continue
			}
			if len(items) == q.limit() {
				return items, nil
			}
			used++
			p, folded := q.commonPrefix(r.Key)
			if passed = nil; folded {
				passed = p
				items = append(items, Item{Entry: Entry{Key: p}, CommonPrefix: true})
			} else {
				items = append(items, Item{Entry: Entry{Key: r.Key, Value: r.Value}})
			}
		}
		if len(rows) < size {
			return items, nil
		}
		b = (&Query{Prefix: q.Prefix, Delimiter: q.Delimiter, After: rows[len(rows)-1].Key}).bounds()
		if passed != nil {
			b = (&Query{Prefix: q.Prefix, Delimiter: q.Delimiter, After: passed}).bounds()
		}
		if 2*used > len(rows) {
			size *= 2
		} else {
			size = max(minSkip, size/2)
		}
	}
	return items, nil
}
