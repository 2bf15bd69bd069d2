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

// failed notes an error of the present round.
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

// publish shows what has been looked at since the interval began.
func (b *Balancer) publish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(now)
}

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

func (b *Balancer) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

// Status of a balancer.
type Status struct {
	// Running: this process looks after the buckets now.
	Running bool
	// Round is what was looked at since the last interval began, or since the one before if that goes on.
	Round Round
	// Late is for how long the bucket that waits longest has been due to be looked at; looks at everything apart.
	Late time.Duration
	// Away is since when the counters have not answered; zero: they do.
	Away time.Time
	// Sizes are those of the last look at everything that this process looks after; zero while it does so for nothing.
	Sizes Sizes
	// Waiting is how many recounts are still to be made.
	Waiting int
	// Recounts made, the rows that they read, and by how many rows the estimates before them were off, in total.
	Recounts, Read, Drift int64
	// Decided counts decisions, Moved the rows that moves copied.
	Decided map[Decision]int64
	Moved   map[policy.Kind]int64

	// Plans made of splits, and how far the moved rows of the last one are above the fewest possible: 0.01 is one
	// percent.
	Plans int64
	Gap   float64
}

// Decision is a decision without its ranges.
type Decision struct {
	Kind policy.Kind
	Why  policy.Why
}

// Round is one look.
type Round struct {
	Began, Ended time.Time
	Everything   bool
	// Buckets and Ranges that were looked at.
	Buckets, Ranges int
	// Why are ranges outside the limits about which nothing is done, at most 100.
	Why []Reason
	// Err joins the first errors.
	Err error

	errors int
}

// Reason says why nothing is done about a range.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Verdict    policy.Decision

	noted time.Time
}

// reasons notes why nothing is done about some ranges of a window's core, and that there is no reason about the others.
// Balancer.mu is held.
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

// Status returns what was done so far.
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
