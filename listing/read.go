package listing

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Get returns the entry with the given key. It fails with ErrNotFound, InvalidArgument, ErrNoSuchBucket,
// ErrBucketClosing, Unavailable, Timeout or Corrupt.
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

// getRow returns the row of a key, or ErrNotFound if the key has no row. The row may be a marker, which says that the
// key was deleted while its range moved.
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
		if rg, err = b.c.maps.Find(ctx, h.Lease, key); err != nil {
			return store.Row{}, err
		}
	}
}

// getIn returns the row of a key in the range rg. The second result is false if the key has no row. If rg moves, getIn
// reads the source of the move, the destination, or both, as the phase of the move says. h is the lease under which it
// reads.
func (c *Client) getIn(ctx context.Context, h *hold, rg partmap.Range, key []byte) (store.Row, bool, error) {
	c.recordRead(h, &rg, key)
	rules := rg.Phase.Rules()
	src := store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}
	dst := store.Partition{Bucket: h.Root().Bucket, ID: rg.To}
	switch {
	case !rules.ReadDestination:
		return c.rows.Get(ctx, src, key)
	case !rules.ReadSource:
		return c.rows.Get(ctx, dst, key)
	}
	return c.getBoth(ctx, h, &rg, src, dst, key)
}

// getBoth returns the row of a key in the range rg, which moves. The second result is false if the key has no row.
// getBoth reads the source src and the destination dst of the move, and merges the two results. h is the lease under
// which it reads.
func (c *Client) getBoth(
	ctx context.Context, h *hold, rg *partmap.Range, src, dst store.Partition, key []byte,
) (store.Row, bool, error) {
	got, err := c.lasting(ctx, h, rg, false, func() (piece, error) {
		var from, to store.Page
		g, gctx := errgroup.WithContext(ctx)
		get := func(p store.Partition, into *store.Page) error {
			row, found, err := c.rows.Get(gctx, p, key)
			if found && err == nil {
				into.Rows = []store.Row{row}
			}
			return err
		}
		g.Go(func() error { return get(src, &from) })
		g.Go(func() error { return get(dst, &to) })
		if err := g.Wait(); err != nil {
			return piece{}, err
		}
		return merge(from, to, false), nil
	})
	if err != nil || len(got.rows) == 0 {
		return store.Row{}, false, err
	}
	return got.rows[0], true, nil
}

// recordRead reports a read at a key to Options.Recorder, which counts reads for each partition. If the range rg moves
// and both its partitions are read, it reports both.
func (c *Client) recordRead(h *hold, rg *partmap.Range, key []byte) {
	rules, p := rg.Phase.Rules(), store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}
	if rules.ReadSource {
		c.o.Recorder.Read(p, key)
	}
	if rules.ReadDestination {
		p.ID = rg.To
		c.o.Recorder.Read(p, key)
	}
}

// errLeaseOver is the error of a read whose lease ended between two steps of the read. The read has to be repeated
// under another lease.
var errLeaseOver = errors.New("the lease is over")

// leaseOver reports whether err, the error of a read, means that the lease of the read has ended. The read then has to
// be repeated under another lease.
func leaseOver(err error) bool {
	return errors.Is(err, errLeaseOver) || errors.Is(err, mapclient.ErrStale)
}

// renew returns a new lease on the bucket of the lease h, and releases h. If renew fails, it returns h itself, which is
// not released then.
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

// readRange returns rows of the range rg within the bounds b, as a piece, the result of a read. If rg moves, it reads
// the source of the move, the destination, or both, as the phase of the move says, and merges their rows. h is the
// lease under which it reads.
func (c *Client) readRange(
	ctx context.Context, h *hold, rg *partmap.Range, b store.Bounds, o store.SliceOptions,
) (piece, error) {
	at := b.Start
	if o.Reverse {
		at = b.End
	}
	c.recordRead(h, rg, at)
	o.Timestamps = h.Timed() // an embedded store needs none: this process draws all timestamps
	got, err := c.lasting(ctx, h, rg, o.Reverse,
		func() (piece, error) { return readPhase(ctx, c.rows, h.Root().Bucket, rg, b, o) })
	c.stamps.Seen(got.highest())
	return got, err
}

// lasting returns rows of the range rg, the result of a read, that no later reader can contradict. The function read
// does the read, and may be called again. While a range moves, the result (a piece) is merged from the source and the
// destination of the move:
//
//	key   source    destination     the piece shows, in the verifying phase
//	a     a=1       -               a=1, once it has been copied to the destination
//	b     b=1       b=2 (newer)     b=2
//	c     -         copy of c=1     nothing, once the copy (an orphan) has been deleted
//
// lasting resolves the orphans in all phases that read both sides. In the verifying phase it also ensures, before it
// returns, that a reader of the destination alone will see exactly what the piece shows.
func (c *Client) lasting(
	ctx context.Context, h *hold, rg *partmap.Range, reverse bool, read func() (piece, error),
) (piece, error) {
	var before []late
	for {
		got, err := read()
		if err == nil && rg.Phase.Rules().WriteThrough {
			err = c.confirm(ctx, h, rg, &got, reverse)
		}
		if err == nil && len(got.orphans) > 0 {
			err = c.lookAgain(ctx, h, rg, &got, reverse)
		}
		// A row may be deleted in the source while its copy is being written and can't be found yet. So the source is
		// read again after the write: a copy without its row is an orphan then, and is deleted.
		if err != nil || !rg.Phase.Rules().WriteThrough || len(got.through) == 0 ||
			slices.EqualFunc(got.through, before, sameVersion) {
			return got, err
		}
		dst := store.Partition{Bucket: h.Root().Bucket, ID: rg.To}
		if err := c.writeThrough(ctx, h, dst, got.through); err != nil {
			return piece{}, err
		}
		if err := c.lookAfter(ctx, h, rg, got.through, reverse); err != nil {
			return piece{}, err
		}
		before = got.through
	}
}

// sameVersion reports whether two rows have the same key, value and timestamp. If so, a repeated read has found nothing
// new.
func sameVersion(a, b late) bool {
	return a.Timestamp == b.Timestamp && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// confirm checks rows that a read has found only in the source of a move (got.through), because another data centre may
// have deleted them. It reads these rows again in every data centre, and removes those from got that are deleted. If a
// data centre can't be read, the rows stay in got, but are not copied to the destination.
func (c *Client) confirm(ctx context.Context, h *hold, rg *partmap.Range, got *piece, reverse bool) error {
	// A row that is written to the destination stays. So rows that another data centre has deleted must not be written.
	if !c.severalCentres() || len(got.through) == 0 {
		return nil // the quorum that was read knows of every deletion
	}
	rows := make([]store.Row, len(got.through))
	for i := range rows {
		rows[i] = got.through[i].Row
	}
	now, known, err := c.everywhere(ctx, store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}, rows)
	if err != nil {
		return err
	}
	var through []late
	for i := range now {
		l := got.through[i]
		switch {
		case !known[i]:
		case now[i].Key == nil || storekit.Newer(&l.Row, &now[i]):
			got.lose(&l, reverse)
		case storekit.Newer(&now[i], &l.Row):
			l.tied = l.tied && now[i].Timestamp == l.Timestamp
			l.Row = now[i]
			got.insert(l.Row, reverse)
			through = append(through, l)
		default:
			through = append(through, l)
		}
	}
	got.through = through
	return nil
}

// lookAfter checks rows that a reader has just copied from the source of a move to the destination. It reads the source
// once more, in every data centre, and deletes the copies of rows that the source has lost meanwhile.
func (c *Client) lookAfter(ctx context.Context, h *hold, rg *partmap.Range, written []late, reverse bool) error {
	// While such a copy was on its way to another data centre, no reader in that data centre could find and delete it.
	if !c.severalCentres() {
		return nil // the next read of both sides finds such copies
	}
	var copies piece
	for i := range written {
		if !written[i].tied {
			copies.orphans = append(copies.orphans, written[i].Row)
		}
	}
	return c.lookAgain(ctx, h, rg, &copies, reverse)
}

// severalCentres reports whether the store has several data centres, of which the reads of this client ask only one.
// The others may know of writes that such a read does not find.
func (c *Client) severalCentres() bool {
	_, several := c.rows.(store.EachQuorum)
	return several
}

// everywhere reads some rows of the partition p again, by their keys, through a quorum of every data centre. The
// results have an element for each row:
//   - now[i] is the present row of the key of rows[i]. It has no key if there is no such row.
//   - known[i] is false if a data centre can't be read. Then now[i] is rows[i] itself.
func (c *Client) everywhere(
	ctx context.Context, p store.Partition, rows []store.Row,
) (now []store.Row, known []bool, err error) {
	wide := storekit.Everywhere(c.rows)
	now, known = make([]store.Row, len(rows)), make([]bool, len(rows))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.MaxParallel)
	for i := range rows {
		g.Go(func() error {
			row, found, err := wide.Get(gctx, p, rows[i].Key)
			if c.severalCentres() && retryable(err) {
				now[i] = rows[i]
				return nil
			}
			if found {
				now[i] = row
			}
			known[i] = err == nil
			return err
		})
	}
	return now, known, g.Wait()
}

// lookAgain decides which orphans are shown. An orphan is a copy in the destination of a move whose original was not
// found in the source. lookAgain reads the originals once more, in every data centre:
//   - If the original is found now, or if a data centre can't be read, the row is shown.
//   - If the original is gone, the row is not shown. In the verifying phase of the move, lookAgain also deletes the
//     copy.
func (c *Client) lookAgain(ctx context.Context, h *hold, rg *partmap.Range, got *piece, reverse bool) error {
	// The source is read again, after the destination, because the row may have been written and copied between the
	// first two reads. Every data centre is read, because a row that is missing in this data centre may be on its way
	// from another.
	//
	// A copy is deleted before its absence is shown. The deletion has the timestamp of the copy. So newer rows stay,
	// and a repeated copy stays hidden. Rows that the copy hid are older than the deletion.
	src := store.Partition{Bucket: h.Root().Bucket, ID: rg.Partition}
	dst := store.Partition{Bucket: h.Root().Bucket, ID: rg.To}
	now, _, err := c.everywhere(ctx, src, got.orphans)
	if err != nil {
		return err
	}
	for i := range got.orphans {
		orphan := &got.orphans[i]
		switch {
		case now[i].Key != nil && storekit.Newer(&now[i], orphan):
			got.insert(now[i], reverse)
			got.through = append(got.through, late{Row: now[i]})
		case now[i].Key != nil && now[i].Timestamp == orphan.Timestamp:
			got.insert(*orphan, reverse)
		case !rg.Phase.Rules().WriteThrough:
		case !h.Valid():
			return errLeaseOver // the source may have been removed before the read
		default:
			err := h.finish(
				ctx, func(ctx context.Context) error { return c.rows.Delete(ctx, dst, orphan.Key, orphan.Timestamp) },
			)
			if err != nil {
				return store.Wrap("delete through", err)
			}
		}
	}
	return nil
}

// readPhase reads rows of the range rg within the bounds b, once, and returns them as a piece. If rg moves, it reads
// the source of the move, the destination, or both, as the phase of the move says, and merges their rows.
func readPhase(
	ctx context.Context, rows store.Rows, id store.BucketID, rg *partmap.Range, b store.Bounds, o store.SliceOptions,
) (piece, error) {
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
	// Both sides are read without a Sift: a row that one side skips may be the only one left of its group, once the
	// other side has deleted the rest.
	o.Timestamps, o.Into, o.Sift = true, nil, nil
	var from, to store.Page
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { from, err = rows.Slice(gctx, src, b, o); return err })
	g.Go(func() (err error) { to, err = rows.Slice(gctx, dst, b, o); return err })
	if err := g.Wait(); err != nil {
		return piece{}, err
	}
	return merge(from, to, o.Reverse), nil
}

// writeThrough copies rows that only the source of a move has to the destination dst. In the verifying phase of a move
// a reader calls writeThrough before it shows the rows: what was shown must stay when the source is no longer read. The
// rows keep their timestamps. Markers, rows that record deletions, are copied, too.
func (c *Client) writeThrough(ctx context.Context, h *hold, dst store.Partition, rows []late) error {
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < batchRows && (n == 0 || size+len(rows[n].Key)+len(rows[n].Value) <= batchBytes) {
			size += len(rows[n].Key) + len(rows[n].Value)
			n++
		}
		batch := make([]store.Row, n)
		for i := range batch {
			batch[i] = store.Row{Key: rows[i].Key, Value: rows[i].cell(), Timestamp: rows[i].Timestamp}
		}
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
