package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/evenkeel/evenkeel/internal/tracing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// Pebble returns a store that makes spans of the calls of requests, and is like s besides.
func (t *Tracing) Pebble(s *pebblestore.Store) store.Store {
	if t == nil {
		return s
	}
	return embedded{calls{s, attribute.String("db.system.name", "pebble")}, belowEmbedded{s}}
}

// Cassandra is Pebble for the other store. The rows of moves are not traced.
func (t *Tracing) Cassandra(s *cassandrastore.Store) store.Store {
	if t == nil {
		return s
	}
	return cluster{calls{s, attribute.String("db.system.name", "cassandra")}, belowCluster{s}}
}

// In these the methods of calls hide those of the store, which lie deeper. All others, of
// interfaces that only some stores have, are the store's own.
type (
	embedded struct {
		calls
		belowEmbedded
	}
	cluster struct {
		calls
		belowCluster
	}
	belowEmbedded struct{ *pebblestore.Store }
	belowCluster  struct{ *cassandrastore.Store }
)

// PutThen hides that of the embedded store.
func (e embedded) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	ctx, span := e.begin(ctx, "put", attribute.Int("evenkeel.rows", len(rows)))
	err := e.belowEmbedded.PutThen(ctx, p, ended, rows...)
	end(span, err)
	return err
}

// calls makes spans of the calls of a store.Store.
type calls struct {
	s      store.Store
	system attribute.KeyValue
}

func (c calls) begin(ctx context.Context, what string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return tracing.Start(ctx, "store "+what, append(attrs, c.system)...)
}

// end ends a span; what is not found is no failure.
func end(span trace.Span, err error) {
	if errors.Is(err, store.NotFound) {
		err = nil
	}
	if err != nil && span.IsRecording() {
		span.SetAttributes(attribute.String("error.type", store.KindOf(err).String()))
	}
	tracing.End(span, err)
}

func (c calls) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	ctx, span := c.begin(ctx, "put", attribute.Int("evenkeel.rows", len(rows)))
	err := c.s.Put(ctx, p, rows...)
	end(span, err)
	return err
}

func (c calls) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	ctx, span := c.begin(ctx, "delete")
	err := c.s.Delete(ctx, p, key, ts)
	end(span, err)
	return err
}

func (c calls) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	ctx, span := c.begin(ctx, "get")
	row, found, err := c.s.Get(ctx, p, key)
	end(span, err)
	return row, found, err
}

func (c calls) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	ctx, span := c.begin(ctx, "slice", attribute.Int("evenkeel.limit", o.Limit))
	page, err := c.s.Slice(ctx, p, b, o)
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("evenkeel.rows", len(page.Rows)))
	}
	end(span, err)
	return page, err
}

func (c calls) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	ctx, span := c.begin(ctx, "remove")
	err := c.s.Remove(ctx, p, b, ts)
	end(span, err)
	return err
}

func (c calls) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	ctx, span := c.begin(ctx, "read "+t.String())
	record, err := c.s.Read(ctx, t, key, l)
	end(span, err)
	return record, err
}

func (c calls) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	ctx, span := c.begin(ctx, "swap "+t.String())
	err := c.s.Swap(ctx, t, key, old, next)
	end(span, err)
	return err
}

func (c calls) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	ctx, span := c.begin(ctx, "scan "+t.String())
	keys, err := c.s.Scan(ctx, t, after, limit)
	end(span, err)
	return keys, err
}

func (c calls) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	ctx, span := c.begin(ctx, "history")
	records, err := c.s.History(ctx, id, before, limit)
	end(span, err)
	return records, err
}

func (c calls) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	ctx, span := c.begin(ctx, "forget")
	err := c.s.Forget(ctx, id, before)
	end(span, err)
	return err
}

func (c calls) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	ctx, span := c.begin(ctx, "write node")
	err := c.s.WriteNode(ctx, b, id, blob)
	end(span, err)
	return err
}

func (c calls) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	ctx, span := c.begin(ctx, "read node")
	blob, err := c.s.Node(ctx, b, id)
	end(span, err)
	return blob, err
}

func (c calls) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	ctx, span := c.begin(ctx, "delete node")
	err := c.s.DeleteNode(ctx, b, id)
	end(span, err)
	return err
}

func (c calls) ScanNodes(ctx context.Context, b store.BucketID, after store.NodeID, limit int) ([]store.NodeID, error) {
	ctx, span := c.begin(ctx, "scan nodes")
	ids, err := c.s.ScanNodes(ctx, b, after, limit)
	end(span, err)
	return ids, err
}

func (c calls) Close() error { return c.s.Close() }
