package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// throttle lets moves give way to others: while there are any it does small reads,
// and takes the rate down when they become slow, up again when they are not.
//
// The small reads are its own, not the clients', because in most forms there are no
// clients in this process; and they meet the same queues in the same store. What is
// slow is judged by what they take when nothing moves, and at the lowest rate, where
// moves cost next to nothing: so a store that others make slow does not hold moves
// down for ever. Moves of ranges that grow do not give way below what they grow by.
type throttle struct {
	pace  *wait.Pacer
	most  int // rows per second; 0: no throttle
	probe func(ctx context.Context) error
	need  func() int // rows per second below which moves do not give way

	base   time.Duration // what a small read takes without moves
	recent []time.Duration
}

const (
	// While something moves a read each probeEvery; else each idleEvery.
	probeEvery = 100 * time.Millisecond
	idleEvery  = 5 * time.Second
	// Of the last so many the median counts.
	probes = 7
	// Slow is what takes longer than slowTimes the base and slowLeast above it.
	slowTimes = 2
	slowLeast = 2 * time.Millisecond
	// Without need the rate goes down to a lowest-th of the most.
	lowest = 20
)

// idle is the lowest rate, at which moves cost next to nothing; floor is the lowest at
// present.
func (t *throttle) idle() int  { return max(1, t.most/lowest) }
func (t *throttle) floor() int { return max(t.idle(), min(t.most, t.need())) }

// begin learns what a read takes before anything moves.
func (t *throttle) begin(ctx context.Context) {
	if t.most <= 0 {
		return
	}
	t.pace.SetRate(t.most)
	for range probes {
		t.measure(ctx)
	}
	t.base, t.recent = t.median(), nil
}

// run follows the store's latency until ctx ends.
func (t *throttle) run(ctx context.Context, moving func() []store.BucketID) {
	if t.most <= 0 {
		return
	}
	for {
		busy := len(moving()) > 0
		every := idleEvery
		if busy {
			every = probeEvery
		}
		if wait.Sleep(ctx, every) != nil {
			return
		}
		if took, ok := t.measure(ctx); ok {
			t.pace.SetRate(t.judge(busy, took))
		}
	}
}

// measure times one small read. One that fails tells nothing of latency: whoever
// moves meets the failure itself.
func (t *throttle) measure(ctx context.Context) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	began := time.Now()
	if err := t.probe(ctx); err != nil && store.KindOf(err) != store.Timeout {
		return 0, false
	}
	took := time.Since(began)
	t.recent = append(t.recent, took)
	if len(t.recent) > probes {
		t.recent = slices.Delete(t.recent, 0, 1)
	}
	return took, true
}

func (t *throttle) median() time.Duration {
	if len(t.recent) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t.recent))
	return s[len(s)/2]
}

// judge takes in a read and returns the rate that follows.
func (t *throttle) judge(moving bool, took time.Duration) int {
	rate := t.pace.Rate()
	const weight = 10 // of what was known before
	if !moving || rate <= t.idle() {
		t.base += (took - t.base) / weight
	}
	if !moving {
		return t.most
	}
	if t.median() > max(slowTimes*t.base, t.base+slowLeast) {
		return max(t.floor(), rate*7/10)
	}
	return min(t.most, max(t.floor(), rate+t.idle()))
}
