package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// throttle slows moves down while other load needs the store. While moves run it measures small reads. It lowers the
// rate when these become slow, and raises it when they are fast again.
//
// The small reads are its own, not those of clients, because in most forms there are no clients in this process. They
// meet the same queues in the same store. They are called slow by comparison with reads when nothing moves, and with
// reads at the lowest rate, where moves cost next to nothing. So a store that is slow for other reasons does not hold
// moves down for ever. Moves of ranges that grow are not slowed down below the rate of that growth (see KeepUp).
type throttle struct {
	pace  *wait.Pacer
	most  int // rows per second; 0: no throttle
	probe func(ctx context.Context) error
	need  func() int // rows per second below which moves are not slowed down

	base   time.Duration // how long a small read takes without moves
	recent []time.Duration
}

const (
	// probeEvery is the time between two small reads while something moves, idleEvery otherwise.
	probeEvery = 100 * time.Millisecond
	idleEvery  = 5 * time.Second
	// probes is the number of the last reads whose median counts.
	probes = 7
	// slowTimes and slowLeast define slow reads: their median is more than slowTimes the base, and more than slowLeast
	// above the base.
	slowTimes = 2
	slowLeast = 2 * time.Millisecond
	// lowest is the divisor of the maximum rate that gives the lowest rate, unless a bucket needs more.
	lowest = 20
)

// idle returns the lowest rate of moves in rows per second, at which they cost next to nothing. floor returns the
// lowest rate that is allowed at present. If buckets need more than the rate of idle, it is that higher rate, but never
// more than the maximum.
func (t *throttle) idle() int  { return max(1, t.most/lowest) }
func (t *throttle) floor() int { return max(t.idle(), min(t.most, t.need())) }

// begin measures how long a small read takes before anything moves, and sets the rate of moves to the maximum.
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

// run adapts the rate of moves to the latency of the store until ctx ends. moving returns the buckets that have moves
// under way.
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

// measure returns how long one small read takes. False: the read failed with an error other than a timeout, which says
// nothing about the latency. Moves meet such a failure themselves.
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

// median returns the median time of the last small reads. 0: there were no reads.
func (t *throttle) median() time.Duration {
	if len(t.recent) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t.recent))
	return s[len(s)/2]
}

// judge returns the new rate of moves, in rows per second, after a small read that took the time took. It also adapts
// the base, which is how long a read takes without moves. moving: there are moves under way.
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
