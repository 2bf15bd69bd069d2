package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// throttle slows moves of rows down while other load needs the store. While moves run, it measures small reads of its
// own. When the reads become slow, it lowers the rate of moves, and when they are fast again, it raises the rate.
// Ranges that grow are still moved at least at the rate of their growth (see KeepUp).
//
// A read counts as slow by comparison with reads when nothing moves, and with reads at the lowest rate, at which moves
// cost next to nothing. So a store that is slow for other reasons does not hold moves down for ever.
type throttle struct {
	pace  *wait.Pacer
	most  int // the highest rate in rows per second, 0 if moves are never slowed down
	probe func(ctx context.Context) error
	need  func() int // rows per second below which moves are not slowed down

	base   time.Duration // how long a small read takes without moves
	recent []time.Duration
}

const (
	// probeEvery is the time between two small reads while rows are moved. idleEvery is the time between two small
	// reads while nothing moves.
	probeEvery = 100 * time.Millisecond
	idleEvery  = 5 * time.Second
	// probes is the number of small reads whose median time is compared: the last 7 reads.
	probes = 7
	// slowTimes and slowLeast define when small reads count as slow: their median time is more than slowTimes the time
	// without moves, and more than slowLeast above that time.
	slowTimes = 2
	slowLeast = 2 * time.Millisecond
	// lowest is the divisor that gives the lowest rate of moves: 1/20 of the maximum rate. The lowest rate is higher if
	// a bucket needs a higher rate to keep up with its writes.
	lowest = 20
)

// idle returns the lowest rate of moves, in rows per second. At this rate moves cost next to nothing.
func (t *throttle) idle() int { return max(1, t.most/lowest) }

// floor returns the lowest rate of moves that is allowed at present, in rows per second. It is the rate that buckets
// need to keep up with their writes, but at least that of idle, and at most the maximum rate.
func (t *throttle) floor() int { return max(t.idle(), min(t.most, t.need())) }

// begin measures the time of a small read before anything moves, and sets the rate of moves to the maximum.
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

// run adapts the rate of moves to the speed of the store, by the duration of small reads, until ctx ends. moving
// returns the buckets that have moves under way.
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
		// The throttle makes its own reads, because in most forms this process has no clients. The reads meet the same
		// queues in the store as the reads of clients.
		if took, ok := t.measure(ctx); ok {
			t.pace.SetRate(t.judge(busy, took))
		}
	}
}

// measure makes one small read, and returns how long it took. A read that times out counts as well. The boolean result
// is false after any other error, which says nothing about the speed of the store.
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

// median returns the median time of the last small reads, or 0 if there were no reads.
func (t *throttle) median() time.Duration {
	if len(t.recent) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t.recent))
	return s[len(s)/2]
}

// judge returns the new rate of moves, in rows per second, after a small read of the store. The parameter took is the
// duration of the read. moving is true if moves are under way. judge also adapts the time that a small read takes
// without moves.
func (t *throttle) judge(moving bool, took time.Duration) int {
	rate := t.pace.Rate()
	const weight = 10 // a read changes the base by 1/weight of the difference
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
