package balancer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// recount is a request to count the rows of one range exactly. why is the reason for the count. estimate are the
// counters of the range before the count.
type recount struct {
	partition store.Partition
	bounds    store.Bounds
	why       policy.Why
	estimate  counter.Stats
}

// aged is the reason for an exact count of a range whose last exact count is old, without any other reason.
const aged policy.Why = "not confirmed for long"

// queue holds the waiting requests to count a range exactly (recounts). There are four classes, in this order:
//   - ranges that may be too large,
//   - ranges of unknown size,
//   - ranges that may be merged, and
//   - ranges whose last exact count is old.
type queue struct {
	mu sync.Mutex
	// free has an element while no goroutine chooses a request from the queue. ready has an element when there may be
	// requests to choose from.
	free, ready chan struct{}
	waiting     [4][]recount
	in          map[store.PartitionID]bool // partitions whose exact count waits or is under way
}

// init makes the maps and channels of the queue, and must be called before the queue is used.
func (q *queue) init() {
	q.free, q.ready, q.in = make(chan struct{}, 1), make(chan struct{}, 1), map[store.PartitionID]bool{}
	wait.Signal(q.free)
}

// len returns the number of exact counts that wait or are under way.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.in)
}

const (
	// maxWaiting is the maximum number of exact counts that wait or are under way, with some 300 bytes for each.
	// smallWaiting is the number from which on no more counts of small ranges are queued, since they would be too old
	// when the last of them is made.
	maxWaiting   = 100_000
	smallWaiting = 4096
)

// add adds x, a request to count a range exactly, to the queue. minRows is the number of rows below which a range is
// small. The results are:
//   - added and there are true if this call has added x.
//   - Only there is true if the queue had a request for the same partition already.
//   - Both are false if the queue is full.
func (q *queue) add(x recount, minRows int64) (added, there bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	class, most := 0, maxWaiting
	switch {
	case x.why == aged:
		class = 3
	case x.why != policy.Suspect:
		class = 1
	case x.estimate.Rows < minRows:
		class, most = 2, smallWaiting
	}
	if q.in[x.partition.ID] || len(q.in) >= most {
		return false, q.in[x.partition.ID]
	}
	q.in[x.partition.ID] = true
	q.waiting[class] = append(q.waiting[class], x)
	return true, true
}

// take removes the most urgent request to count a range exactly from the queue, and returns the request. The result ok
// is false if the queue is empty.
func (q *queue) take() (x recount, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for class := range q.waiting {
		if w := q.waiting[class]; len(w) > 0 {
			if q.waiting[class] = w[1:]; len(w) == 1 {
				q.waiting[class] = nil
			}
			return w[0], true
		}
	}
	return x, false
}

// errLost ends an exact count of a range in a bucket that another process has taken over.
var errLost = store.Errorf(store.Conflict, "another process looks after the bucket now")

// done records that the exact count for the request x has ended. From then on, a count of the same partition can be
// queued again.
func (q *queue) done(x recount) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.in, x.partition.ID)
}

// count carries out one exact count of a range. It waits for the next request in the queue of such counts, and counts
// the rows. Several goroutines call count in a loop. The result is false if ctx has ended, so that the loop must end.
func (b *Balancer) count(ctx context.Context) bool {
	if b.o.Threads.Wait(ctx, b.queue.free) != nil {
		return false
	}
	begun := sync.OnceFunc(func() { wait.Signal(b.queue.free) })
	x, ok := b.queue.take()
	for ; !ok; x, ok = b.queue.take() {
		if b.o.Threads.Wait(ctx, b.queue.ready) != nil {
			begun() // for the next Run
			return false
		}
	}
	_, err := b.recount(ctx, x, func() error {
		begun()
		if !b.o.Led().Bucket(x.partition.Bucket) {
			return errLost
		}
		return nil
	})
	begun()
	b.queue.done(x)
	if ctx.Err() != nil {
		return false
	}
	if err != nil && !errors.Is(err, errLost) {
		b.o.Logger.Warn("a partition can't be counted", "partition", x.partition.String(), "error", err)
	}
	b.agenda.look(x.partition, time.Time{})
	if err == nil {
		b.agenda.hurry(x.partition.Bucket)
	}
	return true
}

// recount counts the rows of a range exactly, corrects the counters of the range's partition, and returns the count.
// The parameter x is the request for the count. The function reads is called before each read of rows; its error ends
// the count. The result is nil if the range has changed meanwhile.
func (b *Balancer) recount(ctx context.Context, x recount, reads func() error) (*counter.Count, error) {
	const tries = 5
	r := countbook.NewRecount(b.store, x.partition, x.bounds, countbook.RecountOptions{
		Now: b.o.Now, PageRows: pageRows(&x.estimate), Yield: func(ctx context.Context, rows int) error {
			if err := b.mover.Pace(ctx, rows); err != nil {
				return err
			}
			return reads()
		},
	})
	var c *counter.Count
	var err error
	pauses := wait.Backoff{First: time.Second, Most: time.Minute}
	for try := range tries {
		if c, err = r.Run(ctx); err == nil || ctx.Err() != nil {
			break
		}
		if k := store.KindOf(err); k != store.Timeout && k != store.Unavailable {
			break
		}
		if b.o.Threads.Sleep(ctx, pauses.Pause(try+1)) != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	// The root that this data centre has tells whether the range has changed. That root lacks at most the swap by which
	// a move begins (marking), and at that stage rows are still written to the same partition.
	root, err := b.maps.Look(ctx, x.partition.Bucket)
	if err != nil {
		return nil, err
	}
	same, err := b.unchanged(ctx, root, x)
	if err != nil || !same {
		return nil, err
	}
	return c, b.correct(ctx, x, c)
}

// pageRows returns the number of rows to read at once in an exact count of a range, 100 to 1,000. The parameter s has
// the counters of the range.
//
// The rate limit charges a full page each time, so a page much larger than the range would cost too much.
func pageRows(s *counter.Stats) int { return int(min(max(s.Rows+s.Rows/4, 100), 1000)) }

// unchanged reports whether a partition still has exactly the range that the request x asks to count, and whether no
// move of the range is under way. root is the root of the bucket's map.
func (b *Balancer) unchanged(ctx context.Context, root *partmap.Root, x recount) (bool, error) {
	for rg, err := range b.maps.Ranges(ctx, root, x.bounds.Start) {
		return err == nil && rg.Partition == x.partition.ID && bytes.Equal(rg.Start, x.bounds.Start) &&
			bytes.Equal(rg.End, x.bounds.End) && !moves(&rg), err
	}
	return false, nil
}

// correct replaces the estimates in the counters of a partition by the result of an exact count. The parameter x is the
// request for the count, and c is the result.
func (b *Balancer) correct(ctx context.Context, x recount, c *counter.Count) error {
	p := &b.o.Policy
	// A recount led to nothing if the estimate was outside the limits and the count is within. A recount of a range
	// that is about to be full is not in vain.
	wrong := x.estimate.AtMost > p.MaxRows || x.estimate.Rows < p.MinRows
	c.Fine = x.why == policy.Suspect && wrong && c.Rows <= p.MaxRows && c.Rows >= p.MinRows
	if err := b.counts.Correct(ctx, x.partition, c); err != nil {
		return err
	}
	b.counted.Add(x.partition.ID, c)
	b.changed(x.partition)
	b.set(func(s *Status) {
		s.Recounts++
		s.Read += c.Rows + c.Markers
		if x.estimate.Known {
			s.Drift += max(c.Rows-x.estimate.Rows, x.estimate.Rows-c.Rows)
		}
	})
	return nil
}

// ageing decides which ranges are counted again because their last exact counts are old. These counts read at most
// Options.ConfirmPerS rows per second on average.
type ageing struct {
	rows, full float64   // rows that may still be read, and the maximum of that; one recount may exceed full
	at         time.Time // when rows was computed
	// stretch is the factor by which exact counts may be older than Options.Confirm. It is above 1 if there are too
	// many rows for ConfirmPerS, and is adapted every FullEvery. round is the time of the last adaptation. short is
	// true if, since then, the allowed rows did not suffice for a count that was due.
	stretch float64
	round   time.Time
	short   bool
}

const (
	// soonConfirmed is the least age at which an exact count is repeated. allowance is the longest time for which
	// unread rows of ConfirmPerS are saved up.
	soonConfirmed = time.Hour
	allowance     = FullEvery
)

// pass gives the repeated exact counts more rows to read: perS rows for each second since the last call. Once in each
// interval FullEvery, it also adapts the field stretch: the counts may become older if they are too many to be repeated
// in time.
func (a *ageing) pass(now time.Time, perS float64) {
	if a.at.IsZero() || now.Before(a.at) {
		a.at, a.round, a.stretch = now, now, max(1, a.stretch)
	}
	a.full = perS * allowance.Seconds()
	a.rows = min(a.rows+perS*now.Sub(a.at).Seconds(), a.full)
	a.at = now
	if now.Sub(a.round) < FullEvery {
		return
	}
	const longest = 60 // the maximum of stretch
	if a.stretch = max(1, a.stretch/2); a.short {
		a.stretch = min(4*a.stretch, longest)
	}
	a.round, a.short = now, false
}

// confirm queues exact counts of ranges whose last exact counts are old. The new counts confirm or correct the
// counters. The parameter w has a run of neighbouring ranges; only those marked in w.core are counted. The caller holds
// Balancer.deciding.
func (b *Balancer) confirm(o *outcome, w *window, in *policy.Input) {
	if b.o.Confirm <= 0 || b.o.Exact {
		return
	}
	a := &b.ageing
	a.pass(in.Now, b.o.ConfirmPerS)
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		if !w.core[i] || !s.Known || in.Ranges[i].Moves {
			continue
		}
		full := min(1, float64(s.Rows)/float64(max(1, in.Policy.MaxRows)))
		most := max(soonConfirmed, time.Duration(full*float64(b.o.Confirm)))
		if in.Now.Sub(s.Recounted) < time.Duration(a.stretch*float64(most)) {
			continue
		}
		o.sizes.Old++
		if need := float64(max(1, s.Rows)); need > a.rows && a.rows < a.full {
			a.short = true
		} else if added, _ := b.queue.add(recountOf(o.id, &w.ranges[i], aged, s), in.Policy.MinRows); added {
			a.rows -= need
		}
	}
}

const (
	// small is the maximum number of rows of a partition that is counted exactly during the check of its bucket.
	// smallTogether is the maximum number of these counts at the same time.
	small         = 200
	smallTogether = 8
)

// errLarge ends an exact count that countSmall makes, if the partition turns out to have more than 200 rows (small).
// The partition is then counted later, by a request in the queue of exact counts.
var errLarge = errors.New("too large to be counted now")

// countSmall counts the rows of nearly empty ranges whose size is unknown. Such ranges may have been cut in advance for
// appends, and their size decides whether more ranges are cut. The parameter w has a run of neighbouring ranges; only
// those marked in w.core are counted. The parameter old is the root of the bucket's map. The boolean result is true if
// at least one range was counted.
func (b *Balancer) countSmall(ctx context.Context, old *partmap.Root, w *window, in *policy.Input) (bool, error) {
	var todo []recount
	for i := range w.ranges {
		if r := &in.Ranges[i]; w.core[i] && !r.Stats.Known && !r.Moves && r.Stats.Rows <= small && len(todo) < smallAtOnce {
			todo = append(todo, recountOf(old.Bucket, &w.ranges[i], policy.Unknown, &r.Stats))
		}
	}
	if len(todo) == 0 {
		return false, nil
	}
	counts := make([]*counter.Count, len(todo))
	err := b.together(len(todo), func(i int) (err error) {
		x, reads := &todo[i], 0
		counts[i], err = countbook.NewRecount(b.store, x.partition, x.bounds, countbook.RecountOptions{
			Now: b.o.Now, PageRows: small, Yield: func(ctx context.Context, _ int) error {
				if reads++; reads > 1 {
					return errLarge
				}
				return ctx.Err()
			},
		}).Run(ctx)
		if errors.Is(err, errLarge) {
			err = nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	root, err := b.maps.Look(ctx, old.Bucket)
	if err != nil {
		return false, err
	}
	counted := false
	for i, c := range counts {
		if c == nil {
			continue
		}
		same, err := b.unchanged(ctx, root, todo[i])
		if err == nil && same {
			err, counted = b.correct(ctx, todo[i], c), true
		}
		if err != nil {
			return false, err
		}
	}
	return counted, nil
}

// together calls f for each number from 0 to n-1, with at most 8 calls (smallTogether) at the same time. together
// returns when all calls have ended, with the error of one of them.
func (b *Balancer) together(n int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, min(n, smallTogether))
	b.beside(len(errs), func(k int) {
		for i := int(next.Add(1)) - 1; i < n && errs[k] == nil; i = int(next.Add(1)) - 1 {
			errs[k] = f(i)
		}
	})()
	return cmp.Or(errs...)
}

// moves reports whether range rg takes part in a move of rows, or whether the markers of its last move have still to be
// deleted.
func moves(rg *partmap.Range) bool { return rg.Phase != partmap.Settled || rg.SweepPending }
