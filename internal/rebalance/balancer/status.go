package balancer

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// failed adds an error to the present round of looks, and logs the first error of a round.
func (b *Balancer) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.round.errors == 0 {
		b.o.Logger.Warn("looking after the sizes of partitions met an error", "error", err)
	}
	if b.round.errors++; b.round.errors <= errorsKept {
		b.round.Err = errors.Join(b.round.Err, err)
	}
}

// publish makes the results of the looks at buckets in the present round visible in Status.
func (b *Balancer) publish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(now)
}

// publishLocked does the work of publish. The caller holds Balancer.mu.
func (b *Balancer) publishLocked(now time.Time) {
	if b.round.Began.IsZero() {
		if b.round.Err == nil {
			return
		}
		b.round.Began = now
	}
	b.round.Ended = now
	b.state.Round = b.round
}

// set calls the function change with the status of the balancer. Balancer.mu is held during the call.
func (b *Balancer) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

// Status is the state of a balancer and the totals of its work.
type Status struct {
	// Running is true while this process looks after the buckets.
	Running bool
	// Round has the results of the looks since the last interval began; or of the round before, if the last round has
	// not ended.
	Round Round
	// Late is the longest time for which a bucket has been due and waits to be looked at. Looks at everything do not
	// count.
	Late time.Duration
	// Away is the time since which the counters have not answered; zero: they answer.
	Away time.Time
	// Sizes are the sizes of the partitions that this process looks after, by its last look at everything. They are
	// zero while it looks after none.
	Sizes Sizes
	// Waiting is the number of recounts that wait or are under way.
	Waiting int
	// Recounts is the number of recounts made, Read the number of rows that they read. Drift is the sum of the
	// differences, in rows, between these counts and the estimates before them.
	Recounts, Read, Drift int64
	// Decided is the number of decisions of each kind and reason. Moved is the number of rows that moves copied.
	Decided map[Decision]int64
	Moved   map[policy.Kind]int64

	// Plans is the number of splits whose cuts a planner found. Gap is by how much the last of these splits copies more
	// rows than the fewest possible: 0.01 is one percent.
	Plans int64
	Gap   float64
}

// Decision is the kind and the reason of a decision, by which decisions are counted. It does not name the ranges.
type Decision struct {
	Kind policy.Kind
	Why  policy.Why
}

// Round is the results of the looks at buckets in one interval. It covers several intervals if the looks take longer.
type Round struct {
	Began, Ended time.Time
	Everything   bool
	// Buckets and Ranges are the numbers of buckets and ranges that were looked at.
	Buckets, Ranges int
	// Why are the reasons about ranges outside the limits for which nothing is done, at most 100.
	Why []Reason
	// Err joins the first errors of the round.
	Err error

	errors int
}

// Reason says why nothing is done about a range that is too large, too small or has another fault.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Verdict    policy.Decision

	noted time.Time
}

// reasons records why nothing is done about ranges that the policy leaves alone. It does so for the core of window w,
// which has the ranges that were due. Earlier reasons about ranges of the core are removed. The caller holds
// Balancer.mu.
func (b *Balancer) reasons(w *window, in *policy.Input, decisions []policy.Decision, id store.BucketID) {
	for i := range decisions {
		d := &decisions[i]
		for k := d.From; k < d.To; k++ {
			if p := w.ranges[k].Partition; w.core[k] {
				delete(b.why, p)
				if k == d.From && d.Kind == policy.None && d.Why != policy.Within && len(b.why) < whyKept {
					b.why[p] = Reason{Bucket: id, Start: bytes.Clone(w.ranges[d.From].Start),
						End: bytes.Clone(w.ranges[d.To-1].End), Verdict: *d, noted: in.Now}
				}
			}
		}
	}
}

// Status returns the state of the balancer and the totals of its work.
func (b *Balancer) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Round.Why = make([]Reason, 0, min(len(b.why), reasonsKept))
	for _, r := range slices.SortedFunc(maps.Values(b.why), func(a, b Reason) int {
		return cmp.Or(bytes.Compare(a.Bucket[:], b.Bucket[:]), bytes.Compare(a.Start, b.Start))
	}) {
		if len(s.Round.Why) < reasonsKept {
			s.Round.Why = append(s.Round.Why, r)
		}
	}
	s.Late = b.agenda.late(b.o.Now())
	s.Decided, s.Moved = maps.Clone(s.Decided), maps.Clone(s.Moved)
	s.Waiting = b.queue.len()
	return s
}
