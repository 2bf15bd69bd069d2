package pause

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Progress is the progress of Quiet.
type Progress struct {
	// Roots that were checked; Scanned: all of them were.
	Roots   int
	Scanned bool
	// Moving are the known buckets with batches in flight, by id.
	Moving []Moving
}

// Moving is a bucket with batches in flight.
type Moving struct {
	Bucket  store.BucketID
	Batches []partmap.Batch
}

const (
	// lookEvery is the pause between two checks of the buckets that move.
	lookEvery = time.Second
	// looksAtOnce is the number of roots read at once.
	looksAtOnce = 16
)

// Quiet returns when no batch is in flight in a bucket (nil: in any), and none can begin before
// the pause ends. report, if not nil, gets the progress. It fails with Conflict if there is no
// pause, or if it ends meanwhile, and with Timeout when ctx ends; the pause stays.
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
	// In this order: a batch that begins after the check of its bucket would be missed.
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

// paused returns the state and its pause.
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

// still fails unless the pause is the one under which the wait began.
func (q *quiet) still(ctx context.Context, p Pause) error {
	_, now, err := q.paused(ctx)
	if err == nil && !now.Since.Equal(p.Since) {
		err = store.Errorf(store.Conflict, "the pause was ended by somebody, and there is another one")
	}
	return err
}

// fence makes sure that no noted swap is applied later.
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

// pass takes a root past an epoch, by a swap to the same map at the next epoch if need be.
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
		// Whatever its outcome, the next read of the root shows it.
		err = q.maps.Swap(ctx, partmap.Again(root, q.maps.Stamp()))
		if ctx.Err() != nil {
			break
		}
	}
	return store.Wrap("shut out moves that were about to begin", err)
}

// scan checks all roots.
func (q *quiet) scan(ctx context.Context) (moving []Moving, err error) {
	if q.id != nil {
		moving, err = q.look(ctx, []Moving{{Bucket: *q.id}})
		q.tell(func(p *Progress) { p.Roots, p.Scanned, p.Moving = 1, true, moving })
		return moving, err
	}
	for keys, err := range store.KeyPages(ctx, q.regs, store.Roots) {
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

// look returns those of some buckets that have batches in flight.
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
