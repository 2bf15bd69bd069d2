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

// failed adds an error to the results of the present interval, in which buckets are checked. Only the first error of an
// interval is logged.
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

// publish makes the results of the present interval, in which buckets are checked, visible in Status. The parameter
// `now` is the time at which the results are complete.
func (b *Balancer) publish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(now)
}

// publishLocked makes the results of the present interval visible in Status, like publish. The caller holds
// Balancer.mu.
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

// set calls the function change with the status of the balancer, so that change can modify the status. Balancer.mu is
// held during the call.
func (b *Balancer) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

// Status is the state of a balancer, which splits and merges the ranges of buckets, and the totals of its work, e.g.
// the number of rows moved.
type Status struct {
	// Running is true while this process checks the buckets and decides about their ranges.
	Running bool
	// Round has the results of the checks since the last interval began, or the results of the interval before if the
	// checks of the last interval have not ended.
	Round Round
	// Late is the longest time for which a bucket with work to do has been waiting for its check. The regular check of
	// all buckets does not count.
	Late time.Duration
	// Away is the time since which the counters, which estimate the sizes of ranges, have not answered. Away is zero if
	// the counters answer.
	Away time.Time
	// Sizes are the sizes of the partitions in the buckets of this process, as found by the last check of all its
	// buckets. Sizes are zero if this process has no buckets to check.
	Sizes Sizes
	// Waiting is the number of exact counts of ranges (recounts) that wait or are under way.
	Waiting int
	// Recounts is the number of exact counts of ranges that were made. Read is the number of rows that these counts
	// read. Drift is the sum of the differences, in rows, between the counts and the estimates before them.
	Recounts, Read, Drift int64
	// Decided is the number of decisions, by kind and reason. Moved is the number of rows that moves copied, by the
	// kind of decision.
	Decided map[Decision]int64
	Moved   map[policy.Kind]int64

	// Plans is the number of splits whose cuts a planner found. Gap is the share of rows by which the last of these
	// splits copies more than the fewest possible rows: 0.01 is one percent.
	Plans int64
	Gap   float64
}

// Decision is the kind and the reason of a decision about ranges, e.g. a split because of too many rows. Decisions are
// counted by kind and reason, without the ranges.
type Decision struct {
	Kind policy.Kind
	Why  policy.Why
}

// Round is the result of the checks of buckets in one interval, in which ranges are split and merged where necessary. A
// Round covers several intervals if the checks take longer than one interval.
type Round struct {
	Began, Ended time.Time
	Everything   bool
	// Buckets and Ranges are the numbers of buckets and of ranges that were checked.
	Buckets, Ranges int
	// Why has the reasons why nothing is done about ranges outside the limits, at most 100 reasons.
	Why []Reason
	// Err joins the first errors of the interval, at most 10. Err is nil if there was no error.
	Err error

	errors int
}

// Reason says why nothing is done about a range with a fault, e.g. one that is too large or too small. Start and End
// are the bounds of the range's keys.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Verdict    policy.Decision

	noted time.Time
}

// reasons records why ranges are left as they are by the policy. w is a run of neighbouring ranges. Only the ranges
// marked in w.core are recorded, and replace what was recorded about them before. The parameter id is the bucket. The
// caller holds Balancer.mu.
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

// Status returns the state of the balancer and the totals of its work. The result is a copy, with at most 100 reasons
// in the order of buckets and keys.
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
