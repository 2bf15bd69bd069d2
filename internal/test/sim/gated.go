package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// gated is a store whose calls wait for their turn before they are executed, and often
// before they return.
type gated struct {
	s        *scheduler
	inner    store.Store
	watch    *watch
	replicas *replicas
	cut      float64 // probability that a data centre does not answer an acknowledgement

	mu sync.Mutex
	r  *rand.Rand
}

var _ store.Store = (*gated)(nil)

// turn waits, calls f, and sometimes waits again. A dead actor's call may be executed
// without a return.
func (g *gated) turn(ctx context.Context, what string, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return store.Wrap(what, err)
	}
	if !g.s.gate(ctx, what) {
		return store.Errorf(store.Unavailable, "%s: %w", what, errStopped)
	}
	err := f(context.WithoutCancel(ctx))
	if g.chance(1.0 / 3) {
		g.s.gate(ctx, "answer to "+what)
	}
	if cerr := ctx.Err(); cerr != nil {
		return store.Wrap(what, cerr)
	}
	return err
}

func (g *gated) chance(p float64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.r.Float64() < p
}

func (g *gated) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	what := fmt.Sprintf("put %s", name(p.ID))
	for _, r := range rows {
		what += fmt.Sprintf(" %s@%d", r.Key, r.Timestamp)
		if store.IsMarker(r.Value) {
			what += "M"
		}
	}
	return g.turn(ctx, what, func(ctx context.Context) error {
		for _, r := range rows {
			g.watch.client(ctx, p, store.Bounds{Start: r.Key, End: next(r.Key)}, true)
		}
		return g.inner.Put(ctx, p, rows...)
	})
}

func (g *gated) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return g.turn(ctx, fmt.Sprintf("delete %s %s@%d", name(p.ID), key, ts), func(ctx context.Context) error {
		g.watch.client(ctx, p, store.Bounds{Start: key, End: next(key)}, true)
		return g.inner.Delete(ctx, p, key, ts)
	})
}

func (g *gated) Get(ctx context.Context, p store.Partition, key []byte) (row store.Row, found bool, err error) {
	err = g.turn(ctx, fmt.Sprintf("get %s %s", name(p.ID), key), func(ctx context.Context) (err error) {
		g.watch.client(ctx, p, store.Bounds{Start: key, End: next(key)}, false)
		row, found, err = g.inner.Get(ctx, p, key)
		return err
	})
	return row, found && err == nil, err
}

func (g *gated) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	err = g.turn(ctx, fmt.Sprintf("slice %s %q %q", name(p.ID), b.Start, b.End), func(ctx context.Context) (err error) {
		g.watch.client(ctx, p, b, false)
		page, err = g.inner.Slice(ctx, p, b, o)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

func (g *gated) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return g.turn(ctx, fmt.Sprintf("remove %s %q %q", name(p.ID), b.Start, b.End), func(ctx context.Context) error {
		g.watch.client(ctx, p, b, true)
		return g.inner.Remove(ctx, p, b, ts)
	})
}

func (g *gated) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	err = g.turn(ctx, "read "+t.String(), func(ctx context.Context) (err error) {
		rec, err = g.inner.Read(ctx, t, key, l)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

func (g *gated) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return g.turn(ctx, fmt.Sprintf("swap %s to %d", t, next.Epoch), func(ctx context.Context) error {
		return g.inner.Swap(ctx, t, key, old, next)
	})
}

// Acknowledge implements store.Acknowledger.
func (g *gated) Acknowledge(ctx context.Context, t store.Table, key []byte) (rec store.Record, err error) {
	err = g.turn(ctx, "acknowledge "+t.String(), func(ctx context.Context) (err error) {
		if g.chance(g.cut) {
			return store.Errorf(store.Unavailable, "a data centre does not answer")
		}
		rec, err = g.replicas.Acknowledge(ctx, t, key)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

func (g *gated) Scan(ctx context.Context, t store.Table, after []byte, limit int) (keys [][]byte, err error) {
	err = g.turn(ctx, "scan "+t.String(), func(ctx context.Context) (err error) {
		keys, err = g.inner.Scan(ctx, t, after, limit)
		return err
	})
	return keys, err
}

func (g *gated) History(ctx context.Context, id store.BucketID, before uint64, limit int) ([]store.Record, error) {
	return g.inner.History(ctx, id, before, limit)
}

func (g *gated) Forget(ctx context.Context, id store.BucketID, before uint64) error {
	return g.inner.Forget(ctx, id, before)
}

func (g *gated) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	return g.turn(ctx, "write node", func(ctx context.Context) error { return g.inner.WriteNode(ctx, b, id, blob) })
}

func (g *gated) Node(ctx context.Context, b store.BucketID, id store.NodeID) (blob []byte, err error) {
	err = g.turn(ctx, "node", func(ctx context.Context) (err error) {
		blob, err = g.inner.Node(ctx, b, id)
		return err
	})
	return blob, err
}

func (g *gated) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	return g.turn(ctx, "delete node", func(ctx context.Context) error { return g.inner.DeleteNode(ctx, b, id) })
}

func (g *gated) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) (ids []store.NodeID, err error) {
	err = g.turn(ctx, "scan nodes", func(ctx context.Context) (err error) {
		ids, err = g.inner.ScanNodes(ctx, b, after, limit)
		return err
	})
	return ids, err
}

func (g *gated) Close() error { return g.inner.Close() }

// name abbreviates a partition's id for traces.
func name(id store.PartitionID) string { return id.String()[:4] }

// next is the key after a key.
func next(key []byte) []byte { return append(append([]byte(nil), key...), 0) }
