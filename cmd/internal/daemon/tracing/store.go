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

// Pebble returns a store that passes all calls on to s, and records a trace span for each call of a traced request. If
// nothing is traced (t is nil), Pebble returns s itself.
func (t *Tracing) Pebble(s pebblestore.Store) store.Store {
	if t == nil {
		return s
	}
	return embedded{calls{s, attribute.String("db.system.name", "pebble")}, belowEmbedded{s}}
}

// Cassandra returns a store that passes all calls on to s, and records a trace span for each call of a traced request.
// Reads and writes of rows by splits and merges of partitions are not traced. If nothing is traced (t is nil),
// Cassandra returns s itself.
func (t *Tracing) Cassandra(s cassandrastore.Store) store.Store {
	if t == nil {
		return s
	}
	return cluster{calls{s, attribute.String("db.system.name", "cassandra")}, belowCluster{s}}
}

// embedded and cluster are stores that record a trace span for each call of a method that all stores have. Methods that
// only some stores have are those of the real store, without a span.
//
// The methods with spans are those of the embedded type calls. The real store is embedded one level deeper, so that the
// methods of calls take the place of its methods with the same names.
type (
	embedded struct {
		calls
		belowEmbedded
	}
	cluster struct {
		calls
		belowCluster
	}
	belowEmbedded struct{ pebblestore.Store }
	belowCluster  struct{ cassandrastore.Store }
)

// PutThen writes rows by PutThen of the embedded store, and records a trace span of the call. The parameter ended is
// passed on to the embedded store.
func (e embedded) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	put := func(ctx context.Context) error { return e.belowEmbedded.PutThen(ctx, p, ended, rows...) }
	return e.do(ctx, "put", put, attribute.Int("evenkeel.rows", len(rows)))
}

// calls is a store.Store that passes each call on to the store s, and records a trace span for each call.
type calls struct {
	s      store.Store
	system attribute.KeyValue
}

func (c calls) begin(ctx context.Context, what string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return tracing.Start(ctx, "store "+what, append(attrs, c.system)...)
}

// do runs call, which is an operation of the store, and records a trace span of the operation with the name what.
func (c calls) do(
	ctx context.Context, what string, call func(context.Context) error, attrs ...attribute.KeyValue,
) error {
	ctx, span := c.begin(ctx, what, attrs...)
	err := call(ctx)
	end(span, err)
	return err
}

// get runs call, which is an operation of the store that returns a value, and records a trace span of the operation
// with the name what.
func get[T any](ctx context.Context, c calls, what string, call func(context.Context) (T, error)) (v T, err error) {
	err = c.do(ctx, what, func(ctx context.Context) (err error) {
		v, err = call(ctx)
		return err
	})
	return v, err
}

// end ends the trace span of a store operation, and records err, the operation's error, in the span. store.NotFound
// does not count as an error, as a missing row or record is a usual answer.
func end(span trace.Span, err error) {
	if errors.Is(err, store.NotFound) {
		err = nil
	}
	if err != nil && span.IsRecording() {
		span.SetAttributes(attribute.String("error.type", store.KindOf(err).Error()))
	}
	tracing.End(span, err)
}

func (c calls) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return c.do(ctx, "put", func(ctx context.Context) error { return c.s.Put(ctx, p, rows...) },
		attribute.Int("evenkeel.rows", len(rows)))
}

func (c calls) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return c.do(ctx, "delete", func(ctx context.Context) error { return c.s.Delete(ctx, p, key, ts) })
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
	return c.do(ctx, "remove", func(ctx context.Context) error { return c.s.Remove(ctx, p, b, ts) })
}

func (c calls) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	return get(ctx, c, "read "+t.String(), func(ctx context.Context) (store.Record, error) {
		return c.s.Read(ctx, t, key, l)
	})
}

func (c calls) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return c.do(ctx, "swap "+t.String(), func(ctx context.Context) error { return c.s.Swap(ctx, t, key, old, next) })
}

func (c calls) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	return get(ctx, c, "scan "+t.String(), func(ctx context.Context) ([][]byte, error) {
		return c.s.Scan(ctx, t, after, limit)
	})
}

func (c calls) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	return get(ctx, c, "history", func(ctx context.Context) ([]store.Record, error) {
		return c.s.History(ctx, id, before, limit)
	})
}

func (c calls) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	return c.do(ctx, "forget", func(ctx context.Context) error { return c.s.Forget(ctx, id, before) })
}

func (c calls) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	return c.do(ctx, "write node", func(ctx context.Context) error { return c.s.WriteNode(ctx, b, id, blob) })
}

func (c calls) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	return get(ctx, c, "read node", func(ctx context.Context) ([]byte, error) { return c.s.Node(ctx, b, id) })
}

func (c calls) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	return c.do(ctx, "delete node", func(ctx context.Context) error { return c.s.DeleteNode(ctx, b, id) })
}

func (c calls) ScanNodes(ctx context.Context, b store.BucketID, after store.NodeID, limit int) ([]store.NodeID, error) {
	return get(ctx, c, "scan nodes", func(ctx context.Context) ([]store.NodeID, error) {
		return c.s.ScanNodes(ctx, b, after, limit)
	})
}

func (c calls) Close() error { return c.s.Close() }
