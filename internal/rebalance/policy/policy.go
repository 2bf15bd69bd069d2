// Package policy decides when and where the ranges of a bucket are split, merged, rolled or refreshed, and when a
// partition is counted: from the estimates of counters, which may be wrong, and from recounts, which are not. Every
// "no" has its reason. The live loop and the simulation (packages balancer and policysim) both execute what Decide
// says.
//
// It is pure: no I/O, no clock, no chance, no memory. Input and Decision are data, which can be stored and replayed.
package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Policy has the limits and parameters of decisions. Begin with Default.
type Policy struct {
	// MaxRows is the most rows of a range: one with more is split.
	MaxRows int64
	// MinRows is the fewest: a range with fewer is merged with a neighbour. 0: never.
	MinRows int64
	// TargetRows is the aim for parts of a split, and the most for the result of a merge.
	TargetRows int64
	// MaxBytes is the most bytes of keys and values, as counted: of a range whose rows are so large that MaxRows of them
	// would have more, the limits in rows are lowered. 0: never.
	MaxBytes int64
	// MaxDead is the number of tombstones above which a partition is refreshed; 0: never. Cassandra warns at 1,000 in
	// one read and fails at 100,000.
	MaxDead int64
	// A range is split by load, where its requests go, if it takes at least LoadShare (0 to 1) of its bucket's writes
	// and reads, and at least LoadPerS per second, for some minutes; LoadPerS 0: never.
	LoadShare, LoadPerS float64

	// Horizon is how far ahead the parts of a split should keep the limits. A range is split when it has more than
	// MaxRows, or has EarlyRows and will have more before the next decision takes effect (within Lead plus the time to
	// move its rows). Growth is forecast up to GrowBy times the present rows (0: not at all); in a rush, which is
	// growth by more than MaxRows in the time to move what grows of a bucket that has more than that, up to RushBy times.
	// Only growth that is spread over the range counts (Spread, see counter.Stats): cuts everywhere do not help growth
	// at one place.
	Horizon   time.Duration
	GrowBy    float64
	RushBy    float64
	EarlyRows int64
	Spread    float64

	// A range is appended to, and rolled, if AppendShare of its puts go above the highest key, at least AppendsPerS per
	// second.
	AppendShare, AppendsPerS float64
	// Lead is the time from one decision until ranges of the next one take puts: an interval and two waits. MovedPerS
	// is how many rows can be moved per second; 0: no limit.
	Lead      time.Duration
	MovedPerS float64
	// Reserve is for how long, at the present rate, ranges are cut ahead of a stream that has filled ranges, if its
	// numbers say where: so much is appended as before while no map can be changed. 0: for 2 x Lead, as for others.
	Reserve time.Duration `json:",omitempty"`

	// Cool is how old partitions must be before they are split by load; how long a merge should last at the present
	// growth; and for how long there must be a range too many before a merge that copies a quarter of MaxRows pays.
	Cool time.Duration
	// Fresh is how old a recount may be to cut by.
	Fresh time.Duration
	// Recount is the least time between two recounts of a partition. Each after which nothing was done doubles it, up
	// to MaxRecount.
	Recount, MaxRecount time.Duration

	Budget Budget

	// Effect is how long it takes until new ranges take puts: two waits.
	Effect time.Duration
	// Planner finds the cuts of splits: one of Planners. Seed is the seed of the genetic planner.
	Planner string
	Seed    int64
}

// Budget limits moves in flight. Rolls move nothing and are free.
type Budget struct {
	// Moves and Rows in flight; 0: no limit. A move larger than the budget may begin when nothing else is in flight.
	Moves int
	Rows  int64
	// Hours of the day (UTC) at which rows may be moved; none: at any. Ranges over Urgent times MaxRows are split at
	// any hour.
	Hours []Hours
}

// Hours are a part of each day, from From up to To since midnight; into the next day if To is not after From.
type Hours struct{ From, To time.Duration }

// Urgent is the multiple of MaxRows from which a split does not wait for Hours.
const Urgent = 1.2

// DefaultPlanner finds the optimum of plan.Costs; over whole loads others cost as much (docs/policy.md).
const DefaultPlanner = "exact"

// Default returns the policy for a maximum of rows that did best in simulation (docs/policy.md).
func Default(maxRows int64) Policy {
	return Policy{
		MaxRows: maxRows, MinRows: maxRows / 4, TargetRows: max(1, maxRows/3*2+maxRows%3*2/3),
		MaxBytes:  100 << 20,
		MaxDead:   50_000,
		LoadShare: 0.25, LoadPerS: 1000,
		Horizon: 3 * time.Minute, GrowBy: 1, RushBy: 5, EarlyRows: max(2, maxRows/5), Spread: 0.75,
		AppendShare: 0.7, AppendsPerS: 0.001, Lead: 40 * time.Second, Reserve: time.Hour,
		Cool: 30 * time.Minute, Fresh: 2 * time.Minute,
		Recount: time.Minute, MaxRecount: time.Hour,
		Budget: Budget{Moves: 256, Rows: 20 * maxRows},
		Effect: 8 * time.Second, Planner: DefaultPlanner, Seed: 1,
	}
}

// Input is all that a decision depends on. In JSON, and back, it gives the same decisions.
type Input struct {
	Now    time.Time
	Policy Policy
	// Moves and Rows are in flight already, in all buckets that share the budget.
	Moves int
	Rows  int64
	// Ranges are neighbours, in the order of their keys.
	Ranges []Range
	// Traffic is the reads and writes per second of the bucket, if it has more than Ranges; else 0.
	Traffic float64 `json:",omitempty"`
}

// Range is a range with the state of its partition.
type Range struct {
	Start, End []byte
	// Stats of its partition; while it moves, of the one that takes the writes.
	Stats counter.Stats
	// Created is when the partition was made.
	Created time.Time
	// PinUntil pins the range's start.
	PinUntil time.Time
	// Moves: the range takes part in a move, or its last one is not swept.
	Moves bool
	// Quanta are where its rows lie, by its last recount, if that is fresh. The first key is empty and stands for the
	// start. nil: unknown.
	Quanta []counter.Quantum `json:",omitempty"`
	// Small is since when it has had fewer than MinRows, as far as is remembered; zero: since now, or it has more.
	Small time.Time `json:",omitzero"`
	// Newest are its highest keys, or the lowest of a range in which keys descend; nil: they have not been read. See
	// Need.
	Newest *Newest `json:",omitempty"`
}

// Newest are the keys at one end of a range, ascending, with the times at which they were written (Unix microseconds).
type Newest struct {
	Keys    [][]byte
	Written []int64
}

// Kind is what should be done.
type Kind string

// The kinds of decisions.
const (
	// Need: read the newest keys of a range that may have to be rolled, and decide again.
	Need    Kind = "need"
	None    Kind = "none"
	Recount Kind = "recount"
	Split   Kind = "split"
	Merge   Kind = "merge"
	Roll    Kind = "roll"
	Refresh Kind = "refresh"
)

// Why is the reason of a decision in one word.
type Why string

// The reasons to act.
const (
	Rows     Why = "rows"     // more than the maximum, or fewer than the minimum
	Forecast Why = "forecast" // will have more than the maximum
	Load     Why = "load"     // takes too much of the bucket's traffic
	Appends  Why = "appends"  // is about to be full
	Dead     Why = "dead"     // too many tombstones
	Unknown  Why = "unknown"  // its size is not known
	Suspect  Why = "suspect"  // it is outside the limits by estimate
)

// The reasons not to act.
const (
	Within Why = "within limits"
	// Growing: it is left to grow, while a plan of today would merge it.
	Growing  Why = "fewer than min_rows, still growing"
	Moving   Why = "moving"
	Pinned   Why = "pinned"
	Cooling  Why = "cooling down"
	OneKey   Why = "one key only"
	Backing  Why = "waiting for a recount"
	Spent    Why = "budget spent"
	OffHours Why = "outside the hours"
	Lonely   Why = "no neighbour fits"
	Rolled   Why = "cut ahead already"
	AtTail   Why = "loaded by appends"
	// A range that should be split by load: nearly all of its requests are for one key, or for pages from one key on.
	Popular   Why = "one popular key"
	Undivided Why = "no key divides it"
	// The rows of a range that should be split all lie at one place.
	NoCut Why = "nowhere to cut"
	// The next keys of a range that should be rolled can't be forecast, and it is not full yet.
	NextUnknown Why = "next keys unknown"
	// The first range of a bucket was filled within seconds: it will be seen soon whether more comes.
	Bursts Why = "a burst, perhaps"
	// A range with too many tombstones will soon have no rows: then it costs nothing to get rid of them.
	Emptying Why = "about to be empty"
)

// Decision is what should be done about neighbouring ranges, or why nothing should.
type Decision struct {
	Kind Kind
	// From and To name the ranges: Input.Ranges[From:To].
	From, To int
	// Cuts are all cuts between the start and the end of the ranges afterwards. Stay is which part, counted from 0,
	// stays in the partition of a single range; negative: none does.
	Cuts [][]byte `json:",omitempty"`
	Stay int
	// Rows that the ranges have; Copies, those that change partition.
	Rows, Copies int64
	Why          Why
	Text         string
	// Gap says how far the planned Copies are above the fewest possible: 0.01 is one percent. nil: no planner cut.
	Gap *float64 `json:",omitempty"`

	// Until is when the reason of a None is over if nothing changes; zero: that is not known.
	Until time.Time `json:",omitzero"`
	// Streams are the places beside which a Split cuts.
	Streams []Stream `json:",omitempty"`
	// Parts is into how many ranges a Split should cut, Grown how many rows there will be at the horizon, at least
	// Rows.
	Parts int   `json:",omitempty"`
	Grown int64 `json:",omitempty"`
	// Ahead is how many ranges a Roll adds beyond the highest key, Rate how many rows are appended per second. A Roll
	// may cut an empty range above the one that is appended to, which is Appended.
	Ahead, Appended int     `json:",omitempty"`
	Rate            float64 `json:",omitempty"`
	// Reserve: Ahead is for Policy.Reserve, if the next keys can be forecast at any rate.
	Reserve bool `json:",omitempty"`
	// Oldest: a Need is for the newest keys of Input.Ranges[Oldest:Appended+1], from the top.
	Oldest int `json:",omitempty"`
	// Down: keys descend. A Roll cuts below the lowest key of Appended, of which a Need is for the lowest keys.
	Down bool `json:",omitempty"`
}

// Stays reports whether ranges are left as they are on purpose, however small, until their load changes: a plan has no
// reason to join them. Others that have too few rows grow, or are merged as soon as that pays.
func (d *Decision) Stays() bool {
	return d.Kind == None && slices.Contains([]Why{Appends, Rolled, AtTail, Pinned, Load, Lonely}, d.Why)
}

// String is the kind with its reason.
func (d Decision) String() string { return fmt.Sprintf("%s: %s: %s", d.Kind, d.Why, d.Text) }

// Decide decides about all ranges of an input. Each range is in exactly one decision; decisions are in the order of the
// ranges. It is pure. The caller carries out Split, Merge, Roll and Refresh, and counts the ranges of a Recount. If
// there is a Need, nothing must be carried out yet: for each Need the caller sets Range.Newest of
// Input.Ranges[Appended], and calls Decide again.
func Decide(in Input) []Decision {
	ds := Judge(&in)
	for i := range ds {
		if d := &ds[i]; d.Kind == Roll {
			alone := d.From == d.Appended
			if in.roll(d); d.Kind == None && alone && d.Rows > in.Policy.MaxRows {
				in.insteadOfRoll(d)
			}
		}
	}
	if slices.ContainsFunc(ds, func(d Decision) bool { return d.Kind == Need }) {
		return ds
	}
	for i := range ds {
		switch d := &ds[i]; d.Kind {
		case Split:
			r := &in.Ranges[d.From]
			in.Policy.sized(&r.Stats).split(r, d)
		case Merge, Refresh:
			d.Stay = -1
		}
	}
	return ds
}
