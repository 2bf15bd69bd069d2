package layouts

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// table is the rows of one bucket in a store. All layouts on the store interface of evenkeel embed a table.
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

// notNil returns value, or an empty slice if value is nil, as the value of a row must not be nil.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// The limits of a batch, which is for one partition, in rows and bytes, and the number of batches that are sent at
// once. These values are the fastest ones for Cassandra.
const (
	batchRows   = 200
	batchBytes  = 1 << 20
	batchesOnce = 4
)

// load stores entries in batches of one partition each. The function place returns the partition of a key.
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

// slice reads up to limit rows of the partition p with keys in the interval b, by as many requests as the size of the
// rows needs. The field More of the result is true if the partition may have further rows within b.
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

// beyond returns the rest of the interval b after a reader has read up to key.
func beyond(b store.Bounds, key []byte, reverse bool) store.Bounds {
	if reverse {
		b.End = key
	} else {
		b.Start, b.StartExclusive = key, true
	}
	return b
}

// through reads all rows of one partition within b, and calls `each` with every page.
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

// sliceFunc is a function that returns up to limit rows with keys within b, in order, or in descending order if reverse
// is true.
type sliceFunc func(ctx context.Context, b store.Bounds, limit int, reverse bool) ([]store.Row, error)

// list returns the answer to a query over rows that slice returns in order. With a delimiter, list skips the keys below
// each common prefix.
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

// minSkip is the smallest number of rows that a skip-scan reads at once, and firstSkip is the number of rows of its
// first read.
const (
	minSkip   = 2
	firstSkip = 64
)

// skipScan returns the items of a listing with a delimiter. As soon as skipScan has found a common prefix, it skips the
// other keys with that prefix. Its reads get larger where most rows become items, and smaller where most rows were read
// in vain.
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
