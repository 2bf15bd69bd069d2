package balancer

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// recount is a recount to be made.
type recount struct {
	partition store.Partition
	bounds    store.Bounds
	why       policy.Why
	estimate  counter.Stats
}

// aged is why a size is counted again that nothing has confirmed for long.
const aged policy.Why = "not confirmed for long"

// queue has the recounts that wait: first the suspected ones, then the unknown ones, then the aged ones.
type queue struct {
	mu      sync.Mutex
	ready   chan struct{} // has an element when there may be something
	waiting [3][]recount
	in      map[store.PartitionID]bool // waiting, or under way
}

func (q *queue) init() {
	q.ready, q.in = make(chan struct{}, 1), map[store.PartitionID]bool{}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.in)
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// maxWaiting bounds the queue; a later look finds what did not fit.
const maxWaiting = 100_000

// add queues a recount, and reports whether it was not there yet.
func (q *queue) add(x recount) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.in[x.partition.ID] || len(q.in) >= maxWaiting {
		return false
	}
	q.in[x.partition.ID] = true
	class := 1
	switch x.why {
	case policy.Suspect:
		class = 0
	case aged:
		class = 2
	}
	q.waiting[class] = append(q.waiting[class], x)
	q.signal()
	return true
}

// next takes a recount, and waits for one if asked to.
func (q *queue) next(ctx context.Context, wait bool) (recount, bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		for class := range q.waiting {
			if w := q.waiting[class]; len(w) > 0 {
				x := w[0]
				if q.waiting[class] = w[1:]; len(w) == 1 {
					q.waiting[class] = nil
				}
				q.signal() // others may have more to do
				q.mu.Unlock()
				return x, true
			}
		}
		q.mu.Unlock()
		if !wait {
			break
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
	return recount{}, false
}

func (q *queue) done(x recount) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.in, x.partition.ID)
}

// Count makes one of the recounts that wait; if there is none, it waits for one or returns false. It returns false also
// when ctx ends. It is safe for concurrent use.
func (b *Balancer) Count(ctx context.Context, wait bool) bool {
	x, ok := b.queue.next(ctx, wait)
	if !ok {
		return false
	}
	_, err := b.recount(ctx, x)
	b.queue.done(x)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		b.o.Logger.Warn("a partition can't be counted", "partition", x.partition.String(), "error", err)
	}
	b.again(x.partition.Bucket, err == nil)
	return true
}

// recount counts a range and corrects the counters. If the range has changed meanwhile it returns nil.
func (b *Balancer) recount(ctx context.Context, x recount) (*counter.Count, error) {
	const tries = 5
	r := counter.NewRecount(b.store, x.partition, x.bounds, counter.RecountOptions{
		Now: b.o.Now, Yield: b.mover.Pace,
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
		if pauses.Sleep(ctx, try+1) != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	same, err := b.unchanged(ctx, x)
	if err != nil || !same {
		return nil, err
	}
	return c, b.correct(ctx, x, c)
}

// unchanged reports whether a partition still has exactly this range, and does not move.
func (b *Balancer) unchanged(ctx context.Context, x recount) (bool, error) {
	root, err := b.maps.Load(ctx, x.partition.Bucket)
	if err != nil {
		return false, err
	}
	for rg, err := range b.maps.Ranges(ctx, root, x.bounds.Start) {
		return err == nil && rg.Partition == x.partition.ID && bytes.Equal(rg.Start, x.bounds.Start) &&
			bytes.Equal(rg.End, x.bounds.End) && !moves(&rg), err
	}
	return false, nil
}

// correct corrects the counters by a recount.
func (b *Balancer) correct(ctx context.Context, x recount, c *counter.Count) error {
	p := &b.o.Policy
	// It was in vain if the estimate was wrong, not if the range is about to be full.
	wrong := x.estimate.AtMost > p.MaxRows || x.estimate.Rows < p.MinRows
	c.Fine = x.why == policy.Suspect && wrong && c.Rows <= p.MaxRows && c.Rows >= p.MinRows
	if err := b.counts.Correct(ctx, x.partition, c); err != nil {
		return err
	}
	b.counted.Add(x.partition.ID, c)
	b.set(func(s *Status) {
		s.Recounts++
		s.Read += c.Rows + c.Markers
		if x.estimate.Known {
			s.Drift += max(c.Rows-x.estimate.Rows, x.estimate.Rows-c.Rows)
		}
	})
	return nil
}

// ageing says which sizes are to be confirmed by a recount.
type ageing struct {
	rows, full float64   // may still be read, and at most; one recount may exceed what is full
	at         time.Time // when that was so
	// stretch is by how much sizes may be older than Options.Confirm, since there are too many rows for ConfirmPerS.
	// It is adapted once in fullEvery, since round; short: there was too little to read in that time.
	stretch float64
	round   time.Time
	short   bool
}

// soonConfirmed is the least age of a recount that is repeated, and allowance the longest time of which what may be read
// is saved up.
const (
	soonConfirmed = time.Hour
	allowance     = fullEvery
)

// pass lets time pass.
func (a *ageing) pass(now time.Time, perS float64) {
	if a.at.IsZero() || now.Before(a.at) {
		a.at, a.round, a.stretch = now, now, max(1, a.stretch)
	}
	a.full = perS * allowance.Seconds()
	a.rows = min(a.rows+perS*now.Sub(a.at).Seconds(), a.full)
	a.at = now
	if now.Sub(a.round) < fullEvery {
		return
	}
	const longest = 60 // times
	if a.stretch = max(1, a.stretch/2); a.short {
		a.stretch = min(4*a.stretch, longest)
	}
	a.round, a.short = now, false
}

// confirm has ranges counted again whose sizes nothing has confirmed for long. For Run only.
func (b *Balancer) confirm(r *Round, id store.BucketID, run []partmap.Range, in *policy.Input) {
	if b.o.Confirm <= 0 || b.o.Exact {
		return
	}
	a := &b.ageing
	a.pass(in.Now, b.o.ConfirmPerS)
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		if !s.Known || in.Ranges[i].Moves {
			continue
		}
		full := min(1, float64(s.Rows)/float64(max(1, in.Policy.MaxRows)))
		most := max(soonConfirmed, time.Duration(full*float64(b.o.Confirm)))
		if in.Now.Sub(s.Recounted) < time.Duration(a.stretch*float64(most)) {
			continue
		}
		r.sizes.Old++
		if need := float64(max(1, s.Rows)); need > a.rows && a.rows < a.full {
			a.short = true
		} else if b.queue.add(recountOf(id, &run[i], aged, s)) {
			a.rows -= need
		}
	}
}

// small is up to how many rows a partition is counted within a look.
const small = 200

// countSmall counts unknown ranges that are nearly empty by estimate, and reports whether it counted any. Ranges that
// were cut ahead of appends are among them: whether more is cut depends on their size.
func (b *Balancer) countSmall(
	ctx context.Context, id store.BucketID, run []partmap.Range, in *policy.Input,
) (counted bool, err error) {
	tries := 0
	for i := range run {
		r := &in.Ranges[i]
		if r.Stats.Known || r.Moves || r.Stats.Rows > small {
			continue
		}
		if tries++; tries > smallAtOnce {
			break
		}
		x := recountOf(id, &run[i], policy.Unknown, &r.Stats)
		page, err := b.store.Slice(ctx, x.partition, x.bounds, store.SliceOptions{Limit: small})
		if err != nil {
			return false, err
		}
		if page.More {
			continue
		}
		c, err := b.recount(ctx, x)
		if err != nil {
			return false, err
		}
		counted = counted || c != nil
	}
	return counted, nil
}

func moves(rg *partmap.Range) bool { return rg.Phase != partmap.Settled || rg.SweepPending }
