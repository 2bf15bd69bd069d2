package faultstore

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// rows injects faults into the calls for rows, at one consistency level of the store.
type rows struct {
	f     *Faults
	inner store.Rows
}

func (r rows) Put(ctx context.Context, p store.Partition, given ...store.Row) error {
	kept := cloneRows(given)
	_, err := r.f.call(ctx, Put, "", func(ctx context.Context) error { return r.inner.Put(ctx, p, kept...) })
	return err
}

func (r rows) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	key = bytes.Clone(key)
	_, err := r.f.call(ctx, Delete, "", func(ctx context.Context) error { return r.inner.Delete(ctx, p, key, ts) })
	return err
}

func (r rows) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	b.Start, b.End = bytes.Clone(b.Start), bytes.Clone(b.End)
	_, err := r.f.call(ctx, Remove, "", func(ctx context.Context) error { return r.inner.Remove(ctx, p, b, ts) })
	return err
}

func (r rows) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	var row store.Row
	var found bool
	_, err := r.f.call(ctx, Get, "", func(ctx context.Context) (err error) {
		row, found, err = r.inner.Get(ctx, p, key)
		return err
	})
	if err != nil {
		return store.Row{}, false, err
	}
	return row, found, nil
}

func (r rows) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	var page store.Page
	d, err := r.f.call(ctx, Slice, "", func(ctx context.Context) (err error) {
		page, err = r.inner.Slice(ctx, p, b, o)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	if n := r.f.shorten(d, len(page.Rows)); n < len(page.Rows) {
		page.Rows, page.More = page.Rows[:n:n], true
	}
	return page, nil
}

// faulty injects faults into all calls of a store, except those of optional interfaces.
type faulty struct {
	rows
	inner store.Store
}

func (s *faulty) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	var got store.Record
	_, err := s.f.call(ctx, Read, "", func(ctx context.Context) (err error) {
		got, err = s.inner.Read(ctx, t, key, l)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return got, nil
}

func (s *faulty) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	var got store.Record
	_, err := s.f.call(ctx, Acknowledge, "", func(ctx context.Context) (err error) {
		got, err = record.Acknowledge(ctx, s.inner, t, key)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return got, nil
}

func (s *faulty) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	key, next.Blob = bytes.Clone(key), bytes.Clone(next.Blob)
	_, err := s.f.call(ctx, Swap, "", func(ctx context.Context) error { return s.inner.Swap(ctx, t, key, old, next) })
	return err
}

func (s *faulty) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	return page(ctx, s.f, Scan,
		func(ctx context.Context) ([][]byte, error) { return s.inner.Scan(ctx, t, after, limit) })
}

func (s *faulty) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	var got []store.Record
	_, err := s.f.call(ctx, History, "", func(ctx context.Context) (err error) {
		got, err = s.inner.History(ctx, id, before, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (s *faulty) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	_, err := s.f.call(ctx, Forget, "", func(ctx context.Context) error { return s.inner.Forget(ctx, id, before) })
	return err
}

func (s *faulty) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	blob = bytes.Clone(blob)
	_, err := s.f.call(ctx, WriteNode, nodeName(b, id),
		func(ctx context.Context) error { return s.inner.WriteNode(ctx, b, id, blob) })
	return err
}

func (s *faulty) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	var blob []byte
	_, err := s.f.call(ctx, Node, "", func(ctx context.Context) (err error) {
		blob, err = s.inner.Node(ctx, b, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return blob, nil
}

func (s *faulty) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	_, err := s.f.call(ctx, DeleteNode, nodeName(b, id),
		func(ctx context.Context) error { return s.inner.DeleteNode(ctx, b, id) })
	return err
}

func (s *faulty) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) ([]store.NodeID, error) {
	return page(ctx, s.f, ScanNodes,
		func(ctx context.Context) ([]store.NodeID, error) { return s.inner.ScanNodes(ctx, b, after, limit) })
}

// Close drops the late writes that were not done yet, and closes the inner store. By the contract a late write may
// never be done.
func (s *faulty) Close() error {
	s.f.mu.Lock()
	s.f.closed, s.f.pending = true, nil
	s.f.mu.Unlock()
	return s.inner.Close()
}

// page reads one page of an enumeration, such as of keys, and makes the page short if the call's fate says so.
func page[T any](ctx context.Context, f *Faults, op Op, read func(ctx context.Context) ([]T, error)) ([]T, error) {
	var all []T
	d, err := f.call(ctx, op, "", func(ctx context.Context) (err error) {
		all, err = read(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := f.shorten(d, len(all))
	return all[:n:n], nil
}

func cloneRows(rows []store.Row) []store.Row {
	kept := make([]store.Row, len(rows))
	for i, r := range rows {
		kept[i] = store.Row{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: r.Timestamp}
	}
	return kept
}

func nodeName(b store.BucketID, id store.NodeID) string { return string(b[:]) + string(id[:]) }
