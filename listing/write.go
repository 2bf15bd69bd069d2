package listing

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Put stores an entry, in place of an earlier one of the key. It fails with
// InvalidArgument, ErrNoSuchBucket, ErrBucketClosing, ErrTimeUnknown or ErrOutcomeUnknown.
// After any other error (Unavailable, Timeout, Corrupt) nothing was written.
func (b *Bucket) Put(ctx context.Context, key, value []byte) error {
	return b.put(ctx, key, value, nil)
}

// Delete removes an entry; it succeeds if there is none. It fails like Put.
func (b *Bucket) Delete(ctx context.Context, key []byte) error {
	return b.delete(ctx, key, nil)
}

// Stamps draws the first of n consecutive timestamps, for writes at given times. They are
// above those of all writes that were acknowledged before the call, like those of Put.
func (c *Client) Stamps(ctx context.Context, n int) (store.Timestamp, error) {
	ts, err := c.stamps.Next(ctx, n)
	return ts, store.Wrap("draw a timestamp", err)
}

// Given is the time of a write that its caller gives, and for how long it may be sent. A write
// that comes after a deletion of its key, but with an older timestamp, is hidden by that in one
// partition; after a move it may reach another one, which never saw the deletion. So nobody may
// delete, or believe a key to be deleted for good, while a write of it may still be sent.
type Given struct {
	// At is from Stamps.
	At store.Timestamp
	// Still reports whether the write may be sent. It is asked under the lease by which the
	// write is sent: then it reaches a partition that everything later knows of.
	Still func() bool
}

// ErrTooLate means that a write was not sent, as Given.Still said so.
var ErrTooLate = store.Errorf(store.Conflict, "the time for the write is over; nothing was written")

// PutAt is Put with a given timestamp. At an equal one the larger value stays. It fails like
// Put, or with ErrTooLate.
func (b *Bucket) PutAt(ctx context.Context, key, value []byte, g Given) error {
	return b.put(ctx, key, value, &g)
}

// DeleteAt is Delete with a given timestamp: what is newer stays. It fails like PutAt.
func (b *Bucket) DeleteAt(ctx context.Context, key []byte, g Given) error {
	return b.delete(ctx, key, &g)
}

func (b *Bucket) put(ctx context.Context, key, value []byte, g *Given) error {
	err := cmp.Or(b.checkKey(key), b.checkValue(value))
	if err == nil {
		err = b.change(ctx, "put", key, value, g)
	}
	return wrap("put", b.name, err)
}

func (b *Bucket) delete(ctx context.Context, key []byte, g *Given) error {
	err := b.checkKey(key)
	if err == nil {
		err = b.change(ctx, "delete", key, nil, g)
	}
	return wrap("delete", b.name, err)
}

// change writes an entry, or with op "delete" its deletion; g is nil, or its given time.
func (b *Bucket) change(ctx context.Context, op string, key, value []byte, g *Given) (err error) {
	h, rg, ts, err := b.stamped(ctx, key, func(*partmap.Range) (store.Timestamp, error) {
		switch {
		case g == nil:
			return b.c.stamps.Next(ctx, 1)
		case g.Still():
			return g.At, nil
		}
		return 0, ErrTooLate
	})
	if err != nil {
		return err
	}
	defer func() { err = h.leave(err) }()
	if op == "delete" {
		return b.c.remove(ctx, h, &rg, key, ts)
	}
	row := store.Row{Key: key, Value: store.EntryCell(value), Timestamp: ts}
	err = b.c.write(ctx, h, &rg, key, key, ts, func(ctx context.Context, p store.Partition) error {
		return h.put(ctx, b.c.rows, p, row)
	})
	if err == nil {
		b.c.o.Recorder.Put(takesWrites(h, &rg), key, len(key)+len(value), ts)
	}
	return err
}

// takesWrites returns the partition that takes the writes of a range.
func takesWrites(h *hold, rg *partmap.Range) store.Partition {
	return store.Partition{Bucket: h.Root().Bucket, ID: rg.WriteTo()}
}

// stamped takes a lease, finds the range of key and draws timestamps, under the lease: otherwise
// an older write could reach a partition that never saw the tombstone of a newer deletion. The
// lease is still valid after the draw: otherwise, after a long stall, the timestamps could be
// above the removal of an abandoned partition, and the rows would stay. A given timestamp was
// drawn before the lease, and is below every removal after it.
func (b *Bucket) stamped(
	ctx context.Context, key []byte, draw func(*partmap.Range) (store.Timestamp, error),
) (*hold, partmap.Range, store.Timestamp, error) {
	for {
		h, rg, err := b.locate(ctx, key)
		if err != nil {
			return nil, rg, 0, err
		}
		ts, err := draw(&rg)
		if err == nil && h.Valid() { // so it was when it was asked for the time
			return h, rg, ts, nil
		}
		h.release()
		if err != nil {
			return nil, rg, 0, err
		}
	}
}

// remove deletes a key, by a marker while its range moves.
func (c *Client) remove(ctx context.Context, h *hold, rg *partmap.Range, key []byte, ts store.Timestamp) error {
	marker := rg.Phase.Rules().Markers
	key = bytes.Clone(key) // finish may outlive the call
	err := c.write(ctx, h, rg, key, key, ts, func(ctx context.Context, p store.Partition) error {
		return h.finish(ctx, func(ctx context.Context) error {
			if marker {
				return c.rows.Put(ctx, p, store.Row{Key: key, Value: store.MarkerCell(), Timestamp: ts})
			}
			return c.rows.Delete(ctx, p, key, ts)
		})
	})
	if err == nil {
		c.o.Recorder.Delete(takesWrites(h, rg), key, ts, marker)
	}
	return err
}

// deleteAt deletes a key unless it was written after ts.
func (b *Bucket) deleteAt(ctx context.Context, key []byte, ts store.Timestamp) (err error) {
	h, rg, err := b.locate(ctx, key)
	if err != nil {
		return err
	}
	defer func() { err = h.leave(err) }()
	return b.c.remove(ctx, h, &rg, key, ts)
}

// write writes keys from first to last, all in rg, to the partition that takes the writes
// of rg, and decides whether the write counts (the protocol's rule of acknowledgement). f
// makes one attempt, by hold.finish or like it. A write of unknown outcome is repeated with
// the same timestamp as long as the lease lasts; never in another partition, where it could
// undo a deletion that was acknowledged meanwhile. ts is the highest timestamp of the write:
// every write after the acknowledgement gets a higher one. The wait for that mostly overlaps
// the write; the lease is checked after it.
func (c *Client) write(
	ctx context.Context, h *hold, rg *partmap.Range, first, last []byte, ts store.Timestamp,
	f func(context.Context, store.Partition) error,
) error {
	if err := c.attempt(ctx, h, takesWrites(h, rg), f); err != nil {
		return err
	}
	if err := c.stamps.Passed(ctx, ts); err != nil {
		return unknown(err)
	}
	if h.Valid() {
		return nil
	}
	return c.stillCounts(ctx, h, rg, first, last)
}

// attempt makes the attempts of a write to p, by f: one after another while the outcome is unknown and the lease lasts.
func (c *Client) attempt(
	ctx context.Context, h *hold, p store.Partition, f func(context.Context, store.Partition) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f(ctx, p)
	maybe := store.OutcomeUnknown(err) // a refused repetition says nothing about the first attempt
	for i := 1; retryable(err) && i < c.o.WriteAttempts && pauses.Sleep(ctx, i) == nil && h.Valid(); i++ {
		err = f(ctx, p)
	}
	if err != nil && maybe {
		return unknown(err)
	}
	return err
}

func retryable(err error) bool {
	k := store.KindOf(err)
	return (k == store.Unavailable || k == store.Timeout) && store.OutcomeUnknown(err)
}

// pauses are those before another attempt of a write.
var pauses = wait.Backoff{First: 4 * time.Millisecond, Most: 2048 * time.Millisecond}

// stillCounts decides whether a write counts whose lease ended meanwhile: it does if the
// bucket is open and its present map has all keys from first to last in the same partition
// and phase. Their range may have been split since.
func (c *Client) stillCounts(ctx context.Context, h *hold, was *partmap.Range, first, last []byte) error {
	now, err := c.acquire(ctx, h.Root().Bucket)
	if err != nil {
		return unknown(err)
	}
	defer now.release()
	for key := first; ; {
		rg, err := c.maps.Find(ctx, now.Lease, key)
		if err != nil {
			return unknown(err)
		}
		if rg.WriteTo() != was.WriteTo() || rg.Phase != was.Phase {
			return unknown(store.Errorf(store.Unavailable, "the range moved while its write was under way"))
		}
		if len(rg.End) == 0 || bytes.Compare(last, rg.End) < 0 {
			return nil
		}
		key = rg.End
	}
}

// Limits of one batch of PutBatch, below which Cassandra is fast.
const (
	batchRows  = 200
	batchBytes = 1 << 20
)

// PutBatch stores entries, in one batch or several per partition; it is neither atomic nor
// isolated. Of several entries with one key the last wins. It returns nil if all are
// stored, else a *BatchError with one outcome per entry, each like an error of Put.
func (b *Bucket) PutBatch(ctx context.Context, entries []Entry) error {
	outcomes := make([]error, len(entries))
	order := make([]int, 0, len(entries))
	for i, e := range entries {
		if outcomes[i] = b.checkKey(e.Key); outcomes[i] == nil {
			outcomes[i] = b.checkValue(e.Value)
		}
		if outcomes[i] == nil {
			order = append(order, i)
		}
	}
	// Stable: timestamps are drawn in this order, so the last of one key wins.
	slices.SortStableFunc(order, func(i, j int) int { return bytes.Compare(entries[i].Key, entries[j].Key) })
	var g errgroup.Group
	g.SetLimit(b.c.o.MaxParallel)
	for len(order) > 0 {
		rest, err := b.putFirst(ctx, &g, entries, order, outcomes)
		if err != nil {
			for _, i := range rest {
				outcomes[i] = err
			}
			break
		}
		order = rest
	}
	_ = g.Wait() // the failures are in outcomes
	failed := false
	for i, err := range outcomes {
		outcomes[i] = wrap("put", b.name, err)
		failed = failed || err != nil
	}
	if failed {
		return &BatchError{Outcomes: outcomes}
	}
	return nil
}

// putFirst starts to write as many of the first entries in order as fit in one batch for
// one partition, under a lease of its own, and returns the rest. With an error nothing was
// started.
func (b *Bucket) putFirst(
	ctx context.Context, g *errgroup.Group, entries []Entry, order []int, outcomes []error,
) (rest []int, err error) {
	var n, size int
	h, rg, ts, err := b.stamped(ctx, entries[order[0]].Key, func(rg *partmap.Range) (store.Timestamp, error) {
		for n, size = 0, 0; n < len(order) && n < batchRows && rg.Contains(entries[order[n]].Key); n++ {
			e := entries[order[n]]
			row := len(e.Key) + 1 + len(e.Value)
			if n > 0 && size+row > batchBytes {
				break
			}
			size += row
		}
		return b.c.stamps.Next(ctx, n)
	})
	if err != nil {
		return order, err
	}
	rows, arena := make([]store.Row, n), slices.Grow([]byte(nil), size)
	for k, i := range order[:n] {
		at := len(arena)
		arena = append(arena, entries[i].Key...)
		cell := len(arena)
		arena = store.AppendEntryCell(arena, entries[i].Value)
		rows[k] = store.Row{
			Key: arena[at:cell:cell], Value: arena[cell:len(arena):len(arena)], Timestamp: ts + store.Timestamp(k),
		}
	}
	mine := order[:n]
	g.Go(func() error {
		put := func(ctx context.Context, p store.Partition) error { return h.putOwn(ctx, b.c.rows, p, rows...) }
		err := b.c.write(ctx, h, &rg, rows[0].Key, rows[n-1].Key, rows[n-1].Timestamp, put)
		if err == nil {
			p := takesWrites(h, &rg)
			for i := range rows { // a cell is a byte longer than its value
				b.c.o.Recorder.Put(p, rows[i].Key, len(rows[i].Key)+len(rows[i].Value)-1, rows[i].Timestamp)
			}
		}
		err = h.leave(err)
		for _, i := range mine {
			outcomes[i] = err
		}
		return nil
	})
	return order[n:], nil
}
