package listing

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Get reads one entry. It fails with ErrNotFound where there is none,
// InvalidArgument, ErrNoSuchBucket, ErrBucketClosing, Unavailable, Timeout or
// Corrupt.
func (b *Bucket) Get(ctx context.Context, key []byte) (Entry, error) {
	row, err := b.getRow(ctx, key)
	if err != nil {
		return Entry{}, wrap("get", b.name, err)
	}
	value, live, err := store.EntryValue(row.Value)
	if err == nil && !live {
		err = ErrNotFound
	}
	return Entry{Key: row.Key, Value: value}, wrap("get", b.name, err)
}

// getRow reads the row of a key; where there is none, it fails with ErrNotFound
// or returns a marker.
func (b *Bucket) getRow(ctx context.Context, key []byte) (store.Row, error) {
	if err := b.checkKey(key); err != nil {
		return store.Row{}, err
	}
	h, rg, err := b.locate(ctx, key)
	if err != nil {
		return store.Row{}, err
	}
	defer func() { h.release() }()
	for {
		row, found, err := b.c.getIn(ctx, h, rg, key)
		if err == nil && h.Valid() {
			if !found {
				return store.Row{}, ErrNotFound
			}
			b.c.stamps.Seen(row.Timestamp)
			return row, nil
		}
		if err != nil && !leaseOver(err) {
			return store.Row{}, err
		}
		if h, err = b.c.renew(ctx, h); err != nil {
			return store.Row{}, err
		}
		if rg, err = b.c.maps.Find(ctx, h.lease, key); err != nil {
			return store.Row{}, err
		}
	}
}

// getIn reads a key as the phase of its range says.
func (c *Client) getIn(ctx context.Context, h *hold, rg partmap.Range, key []byte) (store.Row, bool, error) {
	c.recordRead(h, &rg)
	rules := rg.Phase.Rules()
	src := store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}
	dst := store.Partition{Bucket: h.Root().Bucket, ID: rg.To}
	switch {
	case !rules.ReadDestination:
		return c.rows.Get(ctx, src, key)
	case !rules.ReadSource:
		return c.rows.Get(ctx, dst, key)
	}
	var a, b store.Row
	var inA, inB bool
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { a, inA, err = c.rows.Get(gctx, src, key); return err })
	g.Go(func() (err error) { b, inB, err = c.rows.Get(gctx, dst, key); return err })
	if err := g.Wait(); err != nil {
		return store.Row{}, false, err
	}
	if !inA || inB && !newer(&a, &b) {
		return b, inB, nil
	}
	if rules.WriteThrough {
		if err := c.writeThrough(ctx, h, dst, []store.Row{a}); err != nil {
			return store.Row{}, false, err
		}
	}
	return a, true, nil
}

// recordRead records a read of the partitions that a range's phase says.
func (c *Client) recordRead(h *hold, rg *partmap.Range) {
	rules, p := rg.Phase.Rules(), store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}
	if rules.ReadSource {
		c.o.Recorder.Read(p)
	}
	if rules.ReadDestination {
		p.ID = rg.To
		c.o.Recorder.Read(p)
	}
}

// errLeaseOver: the lease ran out between two steps of a read; it begins anew
// under another one.
var errLeaseOver = errors.New("the lease is over")

// leaseOver reports whether a read has to begin anew under another lease.
func leaseOver(err error) bool {
	return errors.Is(err, errLeaseOver) || errors.Is(err, mapclient.ErrStale)
}

// renew exchanges h for another lease on the same bucket. With an error it
// returns h itself, not released.
func (c *Client) renew(ctx context.Context, h *hold) (*hold, error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	n, err := c.acquire(ctx, h.Root().Bucket)
	if err != nil {
		return h, err
	}
	h.release()
	return n, nil
}

// readRange reads one piece of a range as its phase says. It writes through
// what the verifying phase asks for before it returns.
func (c *Client) readRange(ctx context.Context, h *hold, rg *partmap.Range, b store.Bounds, o store.SliceOptions) (piece, error) {
	c.recordRead(h, rg)
	o.Timestamps = h.Timed() // in the embedded form nobody else gives out timestamps
	got, err := readPhase(ctx, c.rows, h.Root().Bucket, rg, b, o)
	if err == nil && len(got.through) > 0 && rg.Phase.Rules().WriteThrough {
		err = c.writeThrough(ctx, h, store.Partition{Bucket: h.Root().Bucket, ID: rg.To}, got.through)
	}
	if highest := got.highest(); highest > 0 {
		c.stamps.Seen(highest)
	}
	return got, err
}

// readPhase reads the sides of a range that its phase says, and merges them.
func readPhase(ctx context.Context, rows store.Rows, id store.BucketID, rg *partmap.Range, b store.Bounds, o store.SliceOptions) (piece, error) {
	rules := rg.Phase.Rules()
	src, dst := store.Partition{Bucket: id, ID: rg.Partition}, store.Partition{Bucket: id, ID: rg.To}
	if !rules.ReadSource || !rules.ReadDestination {
		if rules.ReadDestination {
			src = dst
		}
		p, err := rows.Slice(ctx, src, b, o)
		if err != nil {
			return piece{}, err
		}
		return single(p), nil
	}
	o.Timestamps, o.Into = true, nil
	var from, to store.Page
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { from, err = rows.Slice(gctx, src, b, o); return err })
	g.Go(func() (err error) { to, err = rows.Slice(gctx, dst, b, o); return err })
	if err := g.Wait(); err != nil {
		return piece{}, err
	}
	return merge(from, to, o.Reverse), nil
}

// writeThrough writes what only a range's source has to its destination, with
// its own timestamps and markers included, before a reader shows it: so what
// was shown stays when nobody looks at the source any more.
func (c *Client) writeThrough(ctx context.Context, h *hold, dst store.Partition, rows []store.Row) error {
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < batchRows && (n == 0 || size+len(rows[n].Key)+len(rows[n].Value) <= batchBytes) {
			size += len(rows[n].Key) + len(rows[n].Value)
			n++
		}
		batch := rows[:n]
		rows = rows[n:]
		if !h.Valid() {
			return errLeaseOver
		}
		err := h.finish(ctx, func(ctx context.Context) error { return c.rows.Put(ctx, dst, batch...) })
		if err != nil {
			return store.Wrap("write through", err)
		}
	}
	return nil
}
