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

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// DeletePrefix deletes all entries whose keys begin with the given prefix, such as photos/, in the way of DeleteRange.
// An empty prefix means all keys.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix []byte) error {
	return b.DeleteRange(ctx, prefix, store.PrefixEnd(prefix))
}

// DeleteRange deletes the entries with from <= key < to that were put before the call. An empty from is the first key,
// an empty to is no end. Entries that are put during the call stay, and listings during the call may still show deleted
// entries. After an error, repeat the call: it may have deleted only a part of the entries.
//
// Time and tombstones grow with the number of ranges of the map, not with the number of entries:
//   - A range that lies within from and to takes one tombstone.
//   - If a range lies only partly within, its entries are deleted one by one up to 1,000 entries, else by one
//     tombstone.
//   - If no entry is found, no tombstone is left: rows that Bring writes later, with older timestamps, are not hidden.
//   - If a range with more than 1,000 entries moves, the call waits for the end of the move.
//
// "Put before the call" holds for all data centres. If this data centre has too few entries for a tombstone, a quorum
// of each data centre is asked, and the call fails with Unavailable while one of them is away. A put that is under way
// when the call begins may stay, as if it had come later. If data centres are far apart, the call deletes from many
// ranges at a time, in no order.
//
// The call deletes from the bucket that has the name when the call begins. It fails with ErrNoSuchBucket if that bucket
// is deleted during the call. It fails with InvalidArgument if the bucket has settings, like a bucket of objects: such
// a bucket belongs to a layer above, which alone knows what its rows mean to each other. The other errors are
// InvalidArgument and those of Delete.
func (b *Bucket) DeleteRange(ctx context.Context, from, to []byte) error {
	_, err := b.DeleteRangeUntil(ctx, from, to, time.Time{})
	return err
}

// DeleteRangeUntil deletes entries like DeleteRange, but may stop before the end. The parameter until is the time after
// which the call begins no other range of the map. The result next is the key from which another call has to go on, or
// nil if all is done:
//   - The entries below next are deleted, and some above it may be.
//   - The other call also deletes entries that were put before the other call began.
//
// A call deletes from one range at least. If that range moves for too long, the call fails with Unavailable.
func (b *Bucket) DeleteRangeUntil(ctx context.Context, from, to []byte, until time.Time) (next []byte, err error) {
	next, err = b.deleteRange(ctx, bytes.Clone(from), bytes.Clone(to), removal{}, until)
	return next, wrap("delete range", b.name, err)
}

// A removal selects the entries that a deletion removes from an interval of keys, by their age: those that were put at
// the timestamp ts or before.
type removal struct {
	ts store.Timestamp // 0 means the timestamp that the call draws
	// older means that many entries of the interval may be newer than ts, as in a deletion of old entries. If older is
	// false, such entries are few.
	older bool
}

// manyEntries is the number of entries up to which a deletion from a part of a range deletes the entries one by one. If
// the part has more, a single tombstone deletes all of them. The store keeps each such tombstone for long, and it costs
// later reads and writes.
const manyEntries = 1000

// deleteRange deletes the entries with from <= key < to that the removal r selects: those that are not newer than its
// timestamp. The parameter until is the time at which the call stops; a zero time is no limit. The result next is the
// key from which another call has to go on, or nil if all is done.
func (b *Bucket) deleteRange(
	ctx context.Context, from, to []byte, r removal, until time.Time,
) (next []byte, err error) {
	if len(to) > 0 && bytes.Compare(from, to) >= 0 {
		return nil, invalid("the range ends at %s, not above its first key %s", keytext.Format(to), keytext.Format(from))
	}
	// All tombstones have one timestamp, so what is put after the call began is newer. A delete may be sent long after
	// its timestamp was drawn, also to a partition that is younger: it hides only what is older.
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
	if !b.c.far() || r.older { // a search for old entries reads whole pages, of which few should be in memory
		return d.within(ctx, ctx, whole)
	}
	return d.parts(ctx, whole)
}

// A deletion is the state of a call that deletes the entries of an interval of keys, perhaps from many partitions.
type deletion struct {
	b *Bucket
	removal
	from  []byte    // the call deletes at least from the range that contains this key
	until time.Time // the time at which the call stops; zero if it does not stop
	pace  *pace
	// near is held by searches and removals that wait for no other data centre. These steps need work of this machine
	// and do not wait for a distance, so at most MaxParallel of them run at a time.
	near *semaphore.Weighted
	// single is held while the entries of a part of a range are collected, to be deleted one by one. So at most one
	// such list is in memory.
	single *semaphore.Weighted
}

// over reports whether the deletion has to stop now, because its time limit (until) has passed.
func (d *deletion) over() bool { return !d.until.IsZero() && !time.Now().Before(d.until) }

// parts deletes entries from many ranges of the map at a time. The parameter left is the interval of keys whose entries
// are to be deleted. The result next is the key below which all is done, or nil if everything is done.
func (d *deletion) parts(ctx context.Context, left span) (next []byte, err error) {
	// Each range is searched, and its entries deleted, by itself. All deletions have the same timestamp, so the ranges
	// need no order. After a failure no other range is begun. The ranges under way go on to their end, since a removal
	// that is broken off has an unknown outcome.
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

// cut returns at most n neighbouring parts of an interval of keys, from its beginning on. The parameter left is the
// interval. Each part lies within one range of the present map. The map may change right afterwards, so each deletion
// from a part reads the map again.
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

// within deletes entries from one range of the map after the other. The parameter left is the interval of keys whose
// entries are to be deleted. The result next is the key from which to go on, or nil if all is done. If a range moves,
// the call may have to wait for the end of the move. The parameter waits is a context that ends this wait.
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

// errSettings means that DeleteRange refuses a bucket with settings. The rows of such a bucket belong to a layer above,
// which alone knows their meaning.
var errSettings = store.Errorf(store.InvalidArgument,
	"the bucket has settings, so its rows are those of a layer above, such as objects: ranges of them are not deleted")

// itself returns a handle of exactly the bucket that has the name of b now. The handle never leads to a later bucket of
// that name.
func (b *Bucket) itself(ctx context.Context) (*Bucket, error) {
	h, err := b.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer h.release()
	return &Bucket{c: b.c, name: b.name, id: h.Root().Bucket}, nil
}

// moveLook is the pause of a deletion that waits for the end of a move, between two checks whether the range still
// moves.
const moveLook = 100 * time.Millisecond

// errMoves means that a range of the map moves, or has moved while a deletion searched it for entries. The deletion
// then tries the range again later. A write that was sent never fails with errMoves.
var errMoves = errors.New("the range moves")

// one deletes entries from a single range of the map. The parameter left is the interval of keys whose entries are to
// be deleted; one takes the first range that the interval touches. The result next is the key at which the range or the
// interval ends. The next call has to go on from there. If there are many entries to delete and the range moves, or has
// moved during the search for them, one fails with errMoves.
func (d *deletion) one(ctx context.Context, left span) (next []byte, err error) {
	b := d.b
	h, rg, err := b.locate(ctx, left.lo)
	if err != nil {
		return nil, err
	}
	if len(h.Root().Settings) > 0 {
		err = errSettings
	}
	h.release() // a search for entries may take longer than a lease lasts
	if err != nil {
		return nil, err
	}
	part, moves := left.within(&rg), rg.Phase.Rules().Markers
	single := manyEntries // up to this number, entries are deleted by their keys
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

// few deletes the entries in a part of a range one by one, by their keys, if their number is at most limit. If there
// are more, few deletes none of them, and the result more is true.
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

// inPart returns the entries of a part of a range that the call has to delete, at most limit of them. The result more
// is true if the part has further such entries.
func (d *deletion) inPart(ctx context.Context, part store.Bounds, limit int) (items []Item, more bool, err error) {
	// A read in this data centre is enough to tell that there are more. To tell that there are no more, a quorum of
	// each data centre is read: another data centre may have acknowledged a put that is still on its way to this one.
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

// removePart deletes the rows of an interval of keys, the parameter part, from the partition p. It writes a single
// tombstone with the timestamp ts. The range of these keys must not move. The parameter h is the lease under which that
// range was found. If the outcome is unknown, removePart fails.
func (b *Bucket) removePart(
	ctx context.Context, h *hold, p store.Partition, part store.Bounds, ts store.Timestamp,
) error {
	// A tombstone of unknown outcome may come late. It would then hide entries that were put at the same time as the
	// call and shown after it.
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

// deleteEach deletes the given entries one by one, by their keys. An entry that is newer than the timestamp ts stays.
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

// allUnderWay returns err, the error of an operation that has made several writes. If some of these writes are still
// running, the returned error also tells when the last of them has ended (see door.UnderWay). The parameter outcomes
// has the errors of the writes.
func allUnderWay(err error, outcomes []error) error {
	var late []<-chan struct{}
	for _, outcome := range outcomes {
		if end := ended(outcome); end != nil {
			late = append(late, end)
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
