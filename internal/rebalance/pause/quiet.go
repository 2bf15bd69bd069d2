package pause

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Progress reports what a call of Quiet has found so far. Quiet waits, during a pause, until no ranges move.
type Progress struct {
	// Roots is the number of buckets whose partition maps were checked. Scanned is true once all maps were checked.
	Roots   int
	Scanned bool
	// Moving lists the buckets in which ranges were found to move, ordered by id.
	Moving []Moving
}

// Moving describes a bucket in which ranges move now: its id, and its batches (groups of moves) that have begun and not
// ended.
type Moving struct {
	Bucket  store.BucketID
	Batches []partmap.Batch
}

const (
	// lookEvery is the pause between two checks of the buckets in which ranges move.
	lookEvery = time.Second
	// looksAtOnce is the number of roots of maps that are read concurrently.
	looksAtOnce = 16
)

// Quiet waits, during a pause, until no ranges move in the bucket id, and none can begin to move before the pause ends.
// A backup needs this before it takes a snapshot. A nil id stands for all buckets. The function report, if not nil, is
// called with the progress.
//
// Quiet fails with Conflict if there is no pause, or if the pause ends meanwhile. It fails with Timeout when ctx ends.
// It never ends the pause.
func Quiet(
	ctx context.Context, regs store.Registers, m Maps, id *store.BucketID, now func() time.Time, report func(Progress),
) error {
	q := quiet{regs: regs, maps: m, id: id, now: now, report: report}
	return store.Wrap("wait until nothing moves", q.wait(ctx))
}

type quiet struct {
	regs   store.Registers
	maps   Maps
	id     *store.BucketID
	now    func() time.Time
	report func(Progress)

	mu  sync.Mutex
	was Progress
}

func (q *quiet) wait(ctx context.Context) error {
	s, p, err := q.paused(ctx)
	if err != nil {
		return err
	}
	// The fence must come before the check of the buckets: otherwise a batch that begins after the check of its bucket
	// would be missed.
	if err := q.fence(ctx, s.Begins); err != nil {
		return err
	}
	moving, err := q.scan(ctx)
	for err == nil && len(moving) > 0 {
		if err = wait.Sleep(ctx, lookEvery); err != nil {
			break
		}
		if moving, err = q.look(ctx, moving); err != nil {
			break
		}
		q.tell(func(p *Progress) { p.Moving = moving })
		err = q.still(ctx, p)
	}
	if err != nil {
		return err
	}
	return q.still(ctx, p)
}

// paused returns the stored state of all pauses, and the pause that is in force for the buckets for which Quiet waits.
// It fails with Conflict if moves of these buckets are not paused.
func (q *quiet) paused(ctx context.Context) (State, Pause, error) {
	s, err := Read(ctx, q.regs, store.Serial)
	if err != nil {
		return s, Pause{}, err
	}
	p, paused := s.of(q.id, q.now())
	if !paused {
		return s, p, store.Errorf(store.Conflict, "moves are not paused")
	}
	return s, p, nil
}

// still checks that p, the pause that was in force when the wait of Quiet began, is still in force. If p has ended, the
// error is of kind Conflict, even if there is a new pause: moves may have begun between the two.
func (q *quiet) still(ctx context.Context, p Pause) error {
	_, now, err := q.paused(ctx)
	if err == nil && !now.Since.Equal(p.Since) {
		err = store.Errorf(store.Conflict, "the pause was ended by somebody, and there is another one")
	}
	return err
}

// fence prevents announced batches (groups) of moves from beginning. In each announcement, a process says that it is
// about to begin a batch by a compare-and-swap of a bucket's root. fence changes these roots first, so that the swaps
// fail. Then it removes the announcements.
func (q *quiet) fence(ctx context.Context, begins []begin) error {
	var over []begin
	for _, b := range begins {
		if q.id != nil && b.Bucket != *q.id {
			continue
		}
		if err := q.pass(ctx, b); err != nil {
			return err
		}
		over = append(over, b)
	}
	if len(over) == 0 {
		return nil
	}
	return change(ctx, q.regs, func(s *State) (bool, error) { return s.strike(over), nil })
}

// pass makes one announced batch of moves impossible. The announcement b says that a process is about to swap a
// bucket's root of the epoch (version) b.Epoch for another. If the root still has this epoch, pass replaces it by a
// root with the next epoch and the same partition map, so that the announced swap fails. If the root has a higher
// epoch, nothing needs to be done.
func (q *quiet) pass(ctx context.Context, b begin) error {
	const tries = 20
	var err error
	for range tries {
		var root *partmap.Root
		if root, err = q.maps.Load(ctx, b.Bucket); err != nil {
			break
		}
		if root.Epoch > b.Epoch {
			return nil
		}
		// Whatever the outcome of the swap, the next read of the root shows it.
		err = q.maps.Swap(ctx, partmap.Again(root, q.maps.Stamp()))
		if ctx.Err() != nil {
			break
		}
	}
	return store.Wrap("shut out moves that were about to begin", err)
}

// scan reads the roots of the partition maps of all buckets that Quiet waits for, and returns the buckets in which
// ranges move now.
func (q *quiet) scan(ctx context.Context) (moving []Moving, err error) {
	if q.id != nil {
		moving, err = q.look(ctx, []Moving{{Bucket: *q.id}})
		q.tell(func(p *Progress) { p.Roots, p.Scanned, p.Moving = 1, true, moving })
		return moving, err
	}
	for keys, err := range record.KeyPages(ctx, q.regs, store.Roots) {
		if err != nil {
			return nil, err
		}
		buckets := make([]Moving, len(keys))
		for i, key := range keys {
			buckets[i].Bucket = store.BucketID(key)
		}
		found, err := q.look(ctx, buckets)
		if err != nil {
			return nil, err
		}
		moving = append(moving, found...)
		q.tell(func(p *Progress) { p.Roots, p.Moving = p.Roots+len(keys), moving })
	}
	q.tell(func(p *Progress) { p.Scanned = true })
	return moving, nil
}

// look reads the roots of the partition maps of the given buckets again, and returns the buckets in which ranges still
// move, ordered by id.
func (q *quiet) look(ctx context.Context, buckets []Moving) (moving []Moving, err error) {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(looksAtOnce)
	var mu sync.Mutex
	for _, b := range buckets {
		work.Go(func() error {
			root, err := q.maps.Load(ctx, b.Bucket)
			if err != nil {
				return err
			}
			if root.State != partmap.Deleted && len(root.Batches) > 0 {
				mu.Lock()
				defer mu.Unlock()
				moving = append(moving, Moving{b.Bucket, root.Batches})
			}
			return nil
		})
	}
	err = work.Wait()
	slices.SortFunc(moving, func(a, b Moving) int { return bytes.Compare(a.Bucket[:], b.Bucket[:]) })
	return moving, err
}

func (q *quiet) tell(change func(*Progress)) {
	q.mu.Lock()
	change(&q.was)
	now := q.was
	q.mu.Unlock()
	if q.report != nil {
		q.report(now)
	}
}
