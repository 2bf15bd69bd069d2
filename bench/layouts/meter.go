package layouts

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// Work is how much a store was read: the number of requests, and the number of rows and of bytes (keys and values) in
// the answers.
type Work struct {
	Requests, Rows, Bytes int64
}

// Meter counts the work of a store: requests, rows and bytes. The methods are safe for concurrent use.
type Meter struct{ requests, rows, bytes atomic.Int64 }

// Add counts one request, with the rows and the bytes of its answer.
func (m *Meter) Add(rows, bytes int) {
	m.requests.Add(1)
	m.rows.Add(int64(rows))
	m.bytes.Add(int64(bytes))
}

// Work returns the work that was counted so far.
func (m *Meter) Work() Work { return Work{m.requests.Load(), m.rows.Load(), m.bytes.Load()} }

// Since returns the work that was added since the earlier count `before`.
func (w Work) Since(before Work) Work {
	return Work{w.Requests - before.Requests, w.Rows - before.Rows, w.Bytes - before.Bytes}
}

// Metered is a store that counts its reads, including reads of maps.
type Metered struct {
	store.Store
	Meter
}

// Slice reads rows by the embedded store, and counts the request.
func (m *Metered) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := m.Store.Slice(ctx, p, b, o)
	size := 0
	for i := range page.Rows {
		size += len(page.Rows[i].Key) + len(page.Rows[i].Value)
	}
	m.Add(len(page.Rows), size)
	return page, err
}

// Get reads a row by the embedded store, and counts the request.
func (m *Metered) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	row, found, err := m.Store.Get(ctx, p, key)
	rows := 0
	if found {
		rows = 1
	}
	m.Add(rows, len(row.Key)+len(row.Value))
	return row, found, err
}

// Read reads a record, such as the root of a map, by the embedded store, and counts the request.
func (m *Metered) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	r, err := m.Store.Read(ctx, t, key, l)
	m.Add(1, len(r.Blob))
	return r, err
}

// Node reads a node of a map by the embedded store, and counts the request.
func (m *Metered) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	blob, err := m.Store.Node(ctx, b, id)
	m.Add(1, len(blob))
	return blob, err
}
