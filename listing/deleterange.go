package listing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
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
// until the move has ended. Where data centres are far apart it deletes from many ranges at once, in no order.
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
// from which to go on with another call, which deletes what was put before that. All below next is done, and some above
// it may be; nil: all is done. A call deletes from one range at least: if that moves for too long it fails with
// Unavailable.
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
	d := deletion{b: b, removal: r, from: from, until: until, pace: b.c.newPace(),
		near: semaphore.NewWeighted(int64(b.c.o.MaxParallel)), single: semaphore.NewWeighted(1)}
	whole := span{lo: from, hi: to}
	if !b.c.far() || r.older { // to find what is old takes whole pages, of which few should be in memory
		return d.within(ctx, ctx, whole)
	}
	return d.parts(ctx, whole)
}

// deletion is one call that deletes a range of keys.
type deletion struct {
	b *Bucket
	removal
	from  []byte // the call deletes at least from the range of this key
	until time.Time
	pace  *pace
	// near is held by the looks and removals that wait for no other data centre: not for a distance, but for work.
	near *semaphore.Weighted
	// single is held by the only part of which entries are looked for to be deleted by their keys.
	single *semaphore.Weighted
}

func (d *deletion) over() bool { return !d.until.IsZero() && !time.Now().Before(d.until) }

// parts deletes from many ranges of the map at once. They need no order: each has its own look, proof and removal, all
// with the one timestamp of the call. All below next is done. After a failure no other range is begun; those that are
// under way go on to their end, since a removal that is broken off has an unknown outcome.
func (d *deletion) parts(ctx context.Context, left span) (next []byte, err error) {
	waits, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var mu sync.Mutex
	var outcomes []error
	stop := func(at []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		if at != nil && (next == nil || bytes.Compare(at, next) < 0) {
			next = at
		}
		if err != nil {
			outcomes = append(outcomes, err)
			giveUp()
		}
	}
	var g errgroup.Group
	for begun := false; !left.done && waits.Err() == nil; {
		parts, err := d.b.cut(ctx, left, d.pace.most)
		if err != nil {
			stop(nil, err)
		}
		for _, part := range parts {
			if begun && d.over() {
				stop(part.lo, nil)
				left.done = true
				break
			}
			begun = true
			err := d.pace.do(waits, &g, func() error {
				stop(d.within(ctx, waits, part))
				return nil
			})
			if err != nil {
				break
			}
			left.lo, left.done = part.hi, bytes.Equal(part.hi, left.hi)
		}
	}
	_ = g.Wait()
	if err := ctx.Err(); err != nil && len(outcomes) == 0 && !left.done {
		outcomes = append(outcomes, context.Cause(ctx))
	}
	if len(outcomes) == 0 {
		return next, nil
	}
	first := outcomes[0]
	unknown := func(err error) bool { return errors.Is(err, ErrOutcomeUnknown) }
	if i := slices.IndexFunc(outcomes, unknown); i > 0 {
		first = outcomes[i]
	}
	return nil, allUnderWay(first, outcomes)
}

// cut returns at most n neighbouring parts of a span, from its beginning on, each of one range of the present map. That
// may change at once: who deletes from a part looks again.
func (b *Bucket) cut(ctx context.Context, left span, n int) (parts []span, err error) {
	for {
		h, err := b.acquire(ctx)
		if err != nil {
			return nil, err
		}
		parts, err = b.cutOf(ctx, h.Root(), left, n)
		h.release()
		if !errors.Is(err, mapclient.ErrStale) || ctx.Err() != nil {
			return parts, err
		}
	}
}

func (b *Bucket) cutOf(ctx context.Context, root *partmap.Root, left span, n int) (parts []span, err error) {
	for rg, err := range b.c.maps.Ranges(ctx, root, left.lo) {
		if err != nil {
			return nil, err
		}
		part := left.within(&rg)
		parts = append(parts, span{lo: part.Start, hi: part.End})
		if len(parts) == n || bytes.Equal(part.End, left.hi) {
			break
		}
	}
	return parts, nil
}

// within deletes from a part of the range of keys, range by range of the map. Once waits has ended, it waits for no
// move.
func (d *deletion) within(ctx, waits context.Context, left span) (next []byte, err error) {
	waited, to := false, left.hi
	for {
		next, err := d.one(ctx, left)
		over := d.over()
		switch moves := errors.Is(err, errMoves); {
		case moves && !over && wait.Sleep(waits, moveLook) == nil:
			waited = true
		case moves && over && !bytes.Equal(left.lo, d.from):
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

// one deletes what lies in the first range of left, and returns where that ends.
func (d *deletion) one(ctx context.Context, left span) (next []byte, err error) {
	b := d.b
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
	more, err := d.few(ctx, part, single)
	switch {
	case err != nil:
		return nil, err
	case !more:
		return part.End, nil
	case moves:
		return nil, errMoves
	}
	if err := d.near.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer d.near.Release(1)
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
	return part.End, b.removePart(ctx, h, takesWrites(h, &now), part, d.ts)
}

// few deletes the entries of a part by their keys if there are at most limit; more: there are others.
func (d *deletion) few(ctx context.Context, part store.Bounds, limit int) (more bool, err error) {
	if limit > 0 {
		if err := d.single.Acquire(ctx, 1); err != nil {
			return false, err
		}
		defer d.single.Release(1)
	}
	items, more, err := d.inPart(ctx, part, limit)
	if err != nil || more {
		return more, err
	}
	return false, d.b.deleteEach(ctx, items, d.ts)
}

// inPart returns at most limit entries that the call deletes of a part of a range; more: there are others. That there
// are more is known from this data centre. That there are not is true only if a quorum of each data centre says so:
// another one may have acknowledged a put that is still on its way to this one.
func (d *deletion) inPart(ctx context.Context, part store.Bounds, limit int) (items []Item, more bool, err error) {
	if err := d.near.Acquire(ctx, 1); err != nil {
		return nil, false, err
	}
	items, more, err = d.b.look(ctx, part, d.removal, limit)
	d.near.Release(1)
	if d.b.c.severalCentres() && err == nil && !more {
		everywhere := *d.b
		everywhere.c = d.b.c.Everywhere()
		begun := time.Now()
		if items, more, err = everywhere.look(ctx, part, d.removal, limit); err == nil {
			d.pace.took(time.Since(begun))
		}
		err = store.Wrap("look in every data centre for what was put before", err)
	}
	return items, more, err
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
	return allUnderWay(g.Wait(), outcomes)
}

// allUnderWay returns err, which says when the writes of all outcomes have ended if some are under way.
func allUnderWay(err error, outcomes []error) error {
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
