package listing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
	"github.com/evenkeel/evenkeel/store/wait"
)

// DeletePrefix is DeleteRange of all keys that begin with a prefix; empty: all keys.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix []byte) error {
	return b.DeleteRange(ctx, prefix, store.PrefixEnd(prefix))
}

// DeleteRange deletes the entries with keys from one key (empty: the first) up to another, which is excluded (empty: no
// end), that were put before the call. What is put meanwhile stays; listings meanwhile show some of the entries. A
// range of the map that lies within as a whole takes one tombstone, and so do more than 1,000 entries of one that does
// not: time and tombstones grow with ranges, not with rows. For a range with more than 1,000 entries that moves it waits
// until the move has ended.
//
// "Put before the call" holds for all data centres: where this one does not have enough to write a tombstone anyhow, a
// quorum of each is asked, and DeleteRange fails with Unavailable while one is away. The deletion is of the bucket that
// the name means when the call begins: if that is deleted meanwhile the call fails with ErrNoSuchBucket, whatever bucket
// was made under its name. A bucket with settings (CreateBucketWith) belongs to a layer above, which alone knows what
// its rows mean to each other: InvalidArgument.
//
// Where nothing is found no tombstone is left: what Bring writes later, with its own older timestamps, is not hidden.
// A put that is under way when the call begins may stay, as if it had come later. DeleteRange fails with
// InvalidArgument or like Delete. Then some entries may be deleted: repeat the call to delete the others.
func (b *Bucket) DeleteRange(ctx context.Context, from, to []byte) error {
	_, err := b.DeleteRangeUntil(ctx, from, to, time.Time{})
	return err
}

// DeleteRangeUntil is DeleteRange that stops between two ranges of the map once a time has passed. next is the key
// from which to go on with another call, which deletes what was put before that; nil: all is done. A call deletes from
// one range at least: if that moves for too long it fails with Unavailable.
func (b *Bucket) DeleteRangeUntil(ctx context.Context, from, to []byte, until time.Time) (next []byte, err error) {
	next, err = b.deleteRange(ctx, bytes.Clone(from), bytes.Clone(to), removal{}, until)
	return next, wrap("delete range", b.name, err)
}

// removal is what is deleted of a range of keys: what is not newer than ts.
type removal struct {
	ts store.Timestamp // 0: that of the call
	// older: there may be much that is newer; else little.
	older bool
}

// More than manyEntries are deleted by one tombstone, others by their keys: each removal of a part of a range is kept
// by the store for as long as a tombstone, and costs later reads and writes.
const manyEntries = 1000

// deleteRange stops at until, unless that is zero.
func (b *Bucket) deleteRange(
	ctx context.Context, from, to []byte, r removal, until time.Time,
) (next []byte, err error) {
	if len(to) > 0 && bytes.Compare(from, to) >= 0 {
		return nil, invalid("the range ends at %s, not above its first key %s", keytext.Format(to), keytext.Format(from))
	}
	// One timestamp for all: what is put after the call began is newer. A delete may be sent long after its
	// timestamp was drawn, also to a partition that is younger: it hides only what is older.
	now, err := b.c.stamps.Next(ctx, 1)
	switch {
	case err == nil && r.ts >= now:
		return nil, invalid("the time up to which entries are deleted is not over")
	case err == nil && r.ts == 0:
		r.ts = now
		err = b.c.stamps.Passed(ctx, now)
	}
	if err != nil {
		return nil, store.Wrap("draw a timestamp", err)
	}
	if b, err = b.itself(ctx); err != nil {
		return nil, err
	}
	waited := false
	for left := (span{lo: from, hi: to}); ; {
		next, err := b.deletePart(ctx, left, r)
		over := !until.IsZero() && !time.Now().Before(until)
		switch moves := errors.Is(err, errMoves); {
		case moves && !over && wait.Sleep(ctx, moveLook) == nil:
			waited = true
		case moves && over && !bytes.Equal(left.lo, from):
			return left.lo, nil
		case moves, err != nil && waited && ctx.Err() != nil:
			return nil, store.Errorf(store.Unavailable, "the range of key %s moves, and has too much to delete by single "+
				"keys: repeat the call when the move has ended: %w", keytext.Format(left.lo), cmp.Or(context.Cause(ctx), err))
		case err != nil:
			return nil, err
		case bytes.Equal(next, to):
			return nil, nil
		case over:
			return next, nil
		default:
			left.lo, waited = next, false
		}
	}
}

// errSettings refuses a deletion of ranges in a bucket of a layer above.
var errSettings = store.Errorf(store.InvalidArgument,
	"the bucket has settings, so its rows are those of a layer above, such as objects: ranges of them are not deleted")

// itself returns a handle of the bucket that b means now.
func (b *Bucket) itself(ctx context.Context) (*Bucket, error) {
	h, err := b.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer h.release()
	return &Bucket{c: b.c, name: b.name, id: h.Root().Bucket}, nil
}

// moveLook is the pause between two looks at a range that moves.
const moveLook = 100 * time.Millisecond

// errMoves means that a range moves, or did while it was looked at. It is never the error of a write that was sent.
var errMoves = errors.New("the range moves")

// deletePart deletes what lies in the first range of left, and returns where that ends.
func (b *Bucket) deletePart(ctx context.Context, left span, r removal) (next []byte, err error) {
	h, rg, err := b.locate(ctx, left.lo)
	if err != nil {
		return nil, err
	}
	if len(h.Root().Settings) > 0 {
		err = errSettings
	}
	h.release() // to look for entries may take longer than a lease lasts
	if err != nil {
		return nil, err
	}
	part, moves := left.within(&rg), rg.Phase.Rules().Markers
	single := manyEntries // are deleted by their keys
	if !moves && string(part.Start) == string(rg.Start) && string(part.End) == string(rg.End) {
		single = 0
	}
	items, more, err := b.inPart(ctx, part, r, single)
	switch {
	case err != nil:
		return nil, err
	case !more:
		return part.End, b.deleteEach(ctx, items, r.ts)
	case moves:
		return nil, errMoves
	}
	h, now, err := b.locate(ctx, part.Start)
	if err != nil {
		return nil, err
	}
	defer func() { err = h.leave(err) }()
	if len(h.Root().Settings) > 0 {
		return nil, errSettings
	}
	if now.Phase != rg.Phase || !bytes.Equal(now.End, rg.End) {
		return nil, errMoves
	}
	return part.End, b.removePart(ctx, h, takesWrites(h, &now), part, r.ts)
}

// removePart deletes a part of a settled range by one tombstone. If its outcome is unknown the call fails: a tombstone
// that comes late would hide what was put at the same time as the call, and was shown after it.
func (b *Bucket) removePart(
	ctx context.Context, h *hold, p store.Partition, part store.Bounds, ts store.Timestamp,
) error {
	err := b.c.attempt(ctx, h, p, func(ctx context.Context, p store.Partition) error {
		return h.finish(ctx, func(ctx context.Context) error { return b.c.rows.Remove(ctx, p, part, ts) })
	})
	if err == nil && !h.Valid() {
		err = unknown(store.Errorf(store.Unavailable, "the lease ended while a part of the range was deleted"))
	}
	if err == nil {
		b.c.o.Recorder.Removed(p)
	}
	return err
}

// deleteEach deletes entries by their keys.
func (b *Bucket) deleteEach(ctx context.Context, items []Item, ts store.Timestamp) error {
	outcomes := make([]error, len(items))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.c.o.MaxParallel)
	for i := range items {
		g.Go(func() error {
			outcomes[i] = b.deleteAt(gctx, items[i].Key, ts)
			return outcomes[i]
		})
	}
	err := g.Wait()
	var late []<-chan struct{}
	for _, outcome := range outcomes {
		if ended := UnderWay(outcome); ended != nil {
			late = append(late, ended)
		}
	}
	if len(late) == 0 {
		return err
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for _, ended := range late {
			<-ended
		}
	}()
	return &underWay{err, all}
}
