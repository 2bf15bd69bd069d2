package sim

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// gated is a store whose calls wait for their turn in the scheduler before they are executed, and often before they
// return.
type gated struct {
	s        *scheduler
	inner    store.Store
	watch    *watch // nil: nobody watches
	replicas *replicas
	centres  *centres // nil: there is one data centre
	cut      float64  // probability that a data centre does not answer an acknowledgement

	mu sync.Mutex
	r  *rand.Rand
}

var _ store.Store = (*gated)(nil)

// turn waits for the turn of the call what, runs f, and sometimes waits again before it returns. If the caller has
// died, f may run although the answer is lost.
func (g *gated) turn(ctx context.Context, what call, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return store.Wrap(what.op, err)
	}
	if !g.s.gateCall(ctx, what) {
		return store.Errorf(store.Unavailable, "%s: %w", what.op, errStopped)
	}
	err := f(detached(ctx))
	if g.chance(1.0 / 3) {
		what.answer = true
		g.s.gateCall(ctx, what)
	}
	if cerr := ctx.Err(); cerr != nil {
		return store.Wrap(what.op, cerr)
	}
	return err
}

// inCall is the context of a store call that goes on even if its caller's context ends. It keeps the values that are
// read several times in each call, so that they are found fast.
type inCall struct {
	context.Context
	actor, op, wide any
}

func detached(ctx context.Context) context.Context {
	return &inCall{
		context.WithoutCancel(ctx), ctx.Value(actorKey{}), ctx.Value(opKey{}), ctx.Value(wideKey{}),
	}
}

// Value returns the value of a key in the context.
func (c *inCall) Value(key any) any {
	switch key.(type) {
	case actorKey:
		return c.actor
	case opKey:
		return c.op
	case wideKey:
		return c.wide
	}
	return c.Context.Value(key)
}

// sees shows a client's call to the watch, which checks the invariants, if the run has a watch.
func (g *gated) sees(ctx context.Context, p store.Partition, b store.Bounds, write bool) {
	if g.watch != nil {
		g.watch.client(ctx, p, b, write)
	}
}

func (g *gated) chance(p float64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.r.Float64() < p
}

func (g *gated) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return g.turn(ctx, call{op: "put", part: p.ID, rows: rows}, func(ctx context.Context) error {
		for _, r := range rows {
			g.sees(ctx, p, store.Bounds{Start: r.Key, End: next(r.Key)}, true)
		}
		return g.inner.Put(ctx, p, rows...)
	})
}

func (g *gated) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	what := call{op: "delete", part: p.ID, rows: []store.Row{{Key: key, Timestamp: ts}}}
	return g.turn(ctx, what, func(ctx context.Context) error {
		g.sees(ctx, p, store.Bounds{Start: key, End: next(key)}, true)
		return g.inner.Delete(ctx, p, key, ts)
	})
}

func (g *gated) Get(ctx context.Context, p store.Partition, key []byte) (row store.Row, found bool, err error) {
	what := call{op: "get", part: p.ID, of: store.Bounds{Start: key}}
	err = g.turn(ctx, what, func(ctx context.Context) (err error) {
		g.sees(ctx, p, store.Bounds{Start: key, End: next(key)}, false)
		row, found, err = g.inner.Get(ctx, p, key)
		return err
	})
	return row, found && err == nil, err
}

func (g *gated) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	err = g.turn(ctx, call{op: "slice", part: p.ID, of: b}, func(ctx context.Context) (err error) {
		g.sees(ctx, p, b, false)
		page, err = g.inner.Slice(ctx, p, b, o)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

func (g *gated) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return g.turn(ctx, call{op: "remove", part: p.ID, of: b}, func(ctx context.Context) error {
		g.sees(ctx, p, b, true)
		return g.inner.Remove(ctx, p, b, ts)
	})
}

func (g *gated) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	err = g.turn(ctx, call{op: "read " + t.String()}, func(ctx context.Context) (err error) {
		if l == store.Serial && g.centres != nil && !g.centres.decides(ctx) {
			return errAway(store.Unavailable)
		}
		rec, err = g.inner.Read(ctx, t, key, l)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

func (g *gated) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return g.turn(ctx, call{op: "swap " + t.String(), epoch: next.Epoch}, func(ctx context.Context) error {
		if g.centres != nil && !g.centres.decides(ctx) {
			return errAway(store.Unavailable)
		}
		return g.inner.Swap(ctx, t, key, old, next)
	})
}

// Acknowledge makes the current record of a register visible to all reads, and returns the record. It fails while a
// data centre does not answer.
func (g *gated) Acknowledge(ctx context.Context, t store.Table, key []byte) (rec store.Record, err error) {
	err = g.turn(ctx, call{op: "acknowledge " + t.String()}, func(ctx context.Context) (err error) {
		if g.chance(g.cut) || g.centres != nil && g.centres.cut() {
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
	err = g.turn(ctx, call{op: "scan " + t.String()}, func(ctx context.Context) (err error) {
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
	return g.turn(ctx, call{op: "write node"}, func(ctx context.Context) error {
		return g.inner.WriteNode(ctx, b, id, blob)
	})
}

func (g *gated) Node(ctx context.Context, b store.BucketID, id store.NodeID) (blob []byte, err error) {
	err = g.turn(ctx, call{op: "node"}, func(ctx context.Context) (err error) {
		blob, err = g.inner.Node(ctx, b, id)
		return err
	})
	return blob, err
}

func (g *gated) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	return g.turn(ctx, call{op: "delete node"}, func(ctx context.Context) error {
		return g.inner.DeleteNode(ctx, b, id)
	})
}

func (g *gated) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) (ids []store.NodeID, err error) {
	err = g.turn(ctx, call{op: "scan nodes"}, func(ctx context.Context) (err error) {
		ids, err = g.inner.ScanNodes(ctx, b, after, limit)
		return err
	})
	return ids, err
}

func (g *gated) Close() error { return g.inner.Close() }

// name returns the first four characters of a partition's id, for traces.
func name(id store.PartitionID) string { return id.String()[:4] }

// next returns the key directly after key, in bytewise order.
func next(key []byte) []byte { return append(append([]byte(nil), key...), 0) }
