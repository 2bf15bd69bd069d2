package listing

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Put stores an entry with the given key and value. It replaces an earlier entry of the key. It fails with
// InvalidArgument, ErrNoSuchBucket, ErrBucketClosing, ErrTimeUnknown or ErrOutcomeUnknown. After any other error
// (Unavailable, Timeout, Corrupt) nothing was written.
func (b *Bucket) Put(ctx context.Context, key, value []byte) error {
	return b.put(ctx, key, value, nil)
}

// Delete removes the entry with the given key. It also succeeds if the key has no entry. It fails with the same errors
// as Put.
func (b *Bucket) Delete(ctx context.Context, key []byte) error {
	return b.delete(ctx, key, nil)
}

// Stamps returns the first of n consecutive timestamps, which the caller may use for PutAt and DeleteAt. Like the
// timestamps of Put, they are above those of all writes that were acknowledged before the call.
func (c clientDoor) Stamps(ctx context.Context, n int) (store.Timestamp, error) {
	ts, err := c.stamps.Next(ctx, n)
	return ts, store.Wrap("draw a timestamp", err)
}

// PutAt stores an entry like Put, but with the timestamp g.At, which the caller has chosen. If the key has an entry
// with a newer timestamp, that entry stays. Of two entries with the same timestamp the entry with the larger value
// stays. PutAt fails like Put, or with ErrTooLate.
func (b bucketDoor) PutAt(ctx context.Context, key, value []byte, g door.Given) error {
	return b.put(ctx, key, value, &g)
}

// DeleteAt removes the entry of a key like Delete, but with the timestamp g.At, which the caller has chosen. An entry
// with a newer timestamp stays. DeleteAt fails like PutAt.
func (b bucketDoor) DeleteAt(ctx context.Context, key []byte, g door.Given) error {
	return b.delete(ctx, key, &g)
}

func (b *Bucket) put(ctx context.Context, key, value []byte, g *door.Given) error {
	err := cmp.Or(b.checkKey(key), b.checkValue(value))
	if err == nil {
		err = b.change(ctx, "put", key, value, g)
	}
	return wrap("put", b.name, err)
}

func (b *Bucket) delete(ctx context.Context, key []byte, g *door.Given) error {
	err := b.checkKey(key)
	if err == nil {
		err = b.change(ctx, "delete", key, nil, g)
	}
	return wrap("delete", b.name, err)
}

// change writes an entry with the given key and value. If op is "delete", it deletes the key instead. The parameter g
// has the timestamp that the caller of PutAt or DeleteAt has chosen. If g is nil, change draws a new timestamp.
func (b *Bucket) change(ctx context.Context, op string, key, value []byte, g *door.Given) (err error) {
	h, rg, ts, err := b.stamped(ctx, key, func(*partmap.Range) (store.Timestamp, error) {
		switch {
		case g == nil:
			return b.c.stamps.Next(ctx, 1)
		case g.Still():
			return g.At, nil
		}
		return 0, door.ErrTooLate
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

// takesWrites returns the partition to which writes in the range rg go. While rg moves, the phase of the move decides
// whether that is the source or the destination. The parameter h is the lease under which rg was found.
func takesWrites(h *hold, rg *partmap.Range) store.Partition {
	return store.Partition{Bucket: h.Root().Bucket, ID: rg.WriteTo()}
}

// stamped prepares a write of key: it returns a lease, the range that contains key, and a timestamp for the write. It
// gets the timestamp from the function draw while the lease is valid.
func (b *Bucket) stamped(
	ctx context.Context, key []byte, draw func(*partmap.Range) (store.Timestamp, error),
) (*hold, partmap.Range, store.Timestamp, error) {
	// draw is called under the lease: otherwise an older write could reach a partition that never saw the tombstone of
	// a newer deletion. The lease is still valid after the draw: otherwise, after a long stall, the timestamp could be
	// above the removal of an abandoned partition, whose rows would stay. A timestamp that the caller gives was drawn
	// before the lease, and is below every removal after the lease.
	for {
		h, rg, err := b.locate(ctx, key)
		if err != nil {
			return nil, rg, 0, err
		}
		ts, err := draw(&rg)
		if err == nil && h.Valid() { // the lease was valid, too, when draw was called
			return h, rg, ts, nil
		}
		h.release()
		if err != nil {
			return nil, rg, 0, err
		}
	}
}

// remove deletes a key in the range rg with the timestamp ts. Usually it writes a tombstone. While the range moves it
// writes a marker, a row that records the deletion. h is the lease under which rg was found.
func (c *Client) remove(ctx context.Context, h *hold, rg *partmap.Range, key []byte, ts store.Timestamp) error {
	marker := rg.Phase.Rules().Markers
	key = bytes.Clone(key) // the write of finish may outlive the call
	err := c.write(ctx, h, rg, key, key, ts, func(ctx context.Context, p store.Partition) error {
		return h.finish(ctx, func(ctx context.Context) error {
			if marker {
				return c.rows.Put(ctx, p, store.Row{Key: key, Value: cells.Marker(), Timestamp: ts})
			}
			return c.rows.Delete(ctx, p, key, ts)
		})
	})
	if err == nil {
		c.o.Recorder.Delete(takesWrites(h, rg), key, ts, marker)
	}
	return err
}

// deleteAt deletes the entry of a key with the timestamp ts. An entry with a newer timestamp stays.
func (b *Bucket) deleteAt(ctx context.Context, key []byte, ts store.Timestamp) (err error) {
	h, rg, err := b.locate(ctx, key)
	if err != nil {
		return err
	}
	defer func() { err = h.leave(err) }()
	return b.c.remove(ctx, h, &rg, key, ts)
}

// write makes a write and decides whether it may be acknowledged. The keys of the write, from first to last, all lie in
// the range rg, and ts is its highest timestamp. The function f makes a single attempt to write to a partition. While
// the outcome is unknown and the lease h lasts, f is called again, at most Options.WriteAttempts times in all. Each
// attempt has the same timestamps and goes to the same partition.
func (c *Client) write(
	ctx context.Context, h *hold, rg *partmap.Range, first, last []byte, ts store.Timestamp,
	f func(context.Context, store.Partition) error,
) error {
	// A write is never repeated in another partition, where it could undo a deletion that was acknowledged meanwhile.
	// Every write after the acknowledgement gets a timestamp above ts. The wait for that mostly overlaps the write, and
	// the lease is checked after the wait.
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

// attempt writes to the partition p by calling f. It calls f again while the outcome of the write is unknown and the
// lease h lasts, at most Options.WriteAttempts times in all.
func (c *Client) attempt(
	ctx context.Context, h *hold, p store.Partition, f func(context.Context, store.Partition) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f(ctx, p)
	maybe := store.OutcomeUnknown(err) // if a later attempt is refused, that says nothing about the first one
	for i := 1; retryable(err) && i < c.o.WriteAttempts && pauses.Sleep(ctx, i) == nil && h.Valid(); i++ {
		err = f(ctx, p)
	}
	if err != nil && maybe {
		return unknown(err)
	}
	return err
}

// retryable reports whether a failed write may be attempted again. It returns true if the outcome of the write is
// unknown because the store was slow or could not be reached.
func retryable(err error) bool {
	k := store.KindOf(err)
	return (k == store.Unavailable || k == store.Timeout) && store.OutcomeUnknown(err)
}

// pauses are the pauses between two attempts of a write: from 4 ms to about 2 s, growing with each attempt.
var pauses = wait.Backoff{First: 4 * time.Millisecond, Most: 2048 * time.Millisecond}

// stillCounts decides whether a write is valid although its lease ended before the store answered. The written keys lie
// from first to last, and was is their range under that lease. The result is nil if
//   - the bucket is open, and
//   - all these keys are still in the same partition and the same phase of a move (the range may have been split
//     since).
//
// Otherwise the result is an error that the outcome is unknown.
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

// batchRows and batchBytes bound the number of rows in a batch of PutBatch, and the bytes of their keys and values.
// Cassandra is fast with batches below these limits.
const (
	batchRows  = 200
	batchBytes = 1 << 20
)

// PutBatch stores the given entries, in one batch or several for each partition. It is neither atomic nor isolated. If
// several entries have the same key, the last of them wins. PutBatch returns nil if all entries are stored. Otherwise
// it returns a *BatchError, which has an outcome for each entry, like an error of Put.
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
	// The sort is stable, as timestamps are drawn in this order: so the last entry of one key wins.
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

// putFirst starts the next write of PutBatch: a batch of entries that lie in the same partition. The parameter order
// has the indexes of the entries still to be written, sorted by key. putFirst takes as many from its beginning as fit
// into the batch, and returns the rest. The write runs in the group g, under a lease of its own, and puts its result
// into outcomes. If putFirst fails, no write was started.
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
		arena = cells.AppendEntry(arena, entries[i].Value)
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
