// Package policy decides when and where the ranges of a bucket are split, merged, rolled or refreshed, and when a
// partition is counted exactly (a recount). A decision follows from the estimates of counters, which may be wrong, and
// from recounts, which are exact. A decision to do nothing carries its reason. The live loop and the simulation
// (packages balancer and policysim) both execute what Decide returns.
//
// The package is pure: no I/O, no clock, no random numbers, no state. Input and Decision are data, which can be stored
// and replayed.
package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Policy has the limits by which ranges are split, merged and refreshed, and the parameters of forecasts. Default
// returns values to begin with.
type Policy struct {
	// MaxRows is the maximum number of rows of a range. A range with more rows is split.
	MaxRows int64
	// MinRows is the minimum number of rows of a range. A range with fewer rows is merged with a neighbour. 0: ranges
	// are never merged.
	MinRows int64
	// TargetRows is the number of rows that parts of a split should have, and the maximum for the result of a merge.
	TargetRows int64
	// MaxBytes is the maximum number of bytes of keys and values in a range, as counted. If MaxRows rows of a range
	// would have more than MaxBytes, the limits in rows are lowered for that range. 0: bytes are not limited.
	MaxBytes int64
	// MaxDead is the number of tombstones above which a partition is refreshed; 0: never. Cassandra warns at 1,000
	// tombstones in one read, and fails at 100,000.
	MaxDead int64
	// LoadShare and LoadPerS limit the load of a range. A range is split at the keys that requests ask for if the range
	// takes at least LoadShare (0 to 1) of the writes and reads of its bucket, and at least LoadPerS of them per
	// second, for some minutes. LoadPerS 0: no range is split by load.
	LoadShare, LoadPerS float64

	// Horizon is how far ahead the parts of a split should keep within the limits. A range is split when it has more
	// than MaxRows rows; or when it has at least EarlyRows rows and will have more than MaxRows before the next
	// decision takes effect, which is Lead plus the time to move its rows.
	//
	// The forecast of growth is at most GrowBy times the present rows (0: no forecast), and at most RushBy times in a
	// rush: growth by more than MaxRows during one move, in a bucket with more than MaxRows rows.
	//
	// Only growth that is spread over the range counts (counter.Stats.Spread of at least Spread): cuts everywhere do
	// not help growth at one place.
	Horizon   time.Duration
	GrowBy    float64
	RushBy    float64
	EarlyRows int64
	Spread    float64

	// AppendShare and AppendsPerS define appends. A range is appended to, and rolled, if at least AppendShare (0 to 1)
	// of its puts go above the highest key, and at least AppendsPerS of them per second.
	AppendShare, AppendsPerS float64
	// Lead is the time from one decision until the ranges of the next decision take puts: an interval and two waits.
	// MovedPerS is the number of rows that can be moved per second; 0: no limit.
	Lead      time.Duration
	MovedPerS float64
	// Reserve is the time for which appends find ranges that were cut ahead, at the present rate, even if no map can be
	// changed in that time. Only streams that have filled ranges before get such a reserve, and only if the numbers in
	// their keys say where the next keys come. 0: 2 x Lead, as for other streams.
	Reserve time.Duration `json:",omitempty"`

	// Cool has three uses. Partitions younger than Cool are not split by load. A merged range should stay within the
	// limits for Cool at the present growth. And a merge that copies a full range pays when there has been one range
	// too many for rent (6) times Cool; a merge that copies less pays sooner, in proportion.
	Cool time.Duration
	// Fresh is the maximum age of a recount by which a range is cut.
	Fresh time.Duration
	// Recount is the least time between two recounts of a partition. Each recount after which nothing was done doubles
	// that time, up to MaxRecount.
	Recount, MaxRecount time.Duration

	Budget Budget

	// Effect is the time until new ranges take puts: two waits.
	Effect time.Duration
	// Planner names the planner that finds the cuts of splits: one of Planners. Seed is the seed of the genetic
	// planner.
	Planner string
	Seed    int64
}

// Budget limits the moves of rows that go on at the same time. Cuts ahead of appends (Roll) copy no rows and do not
// count.
type Budget struct {
	// Moves is the maximum number of partitions that take part in moves in flight, as sources or destinations. Rows is
	// the maximum number of rows to copy. 0: no limit. A move larger than the budget may begin when nothing else is in
	// flight.
	Moves int
	Rows  int64
	// Hours are the times of day (UTC) at which rows may be moved; none: at any time. Ranges with more than Urgent
	// times MaxRows rows are split at any time.
	Hours []Hours
}

// Hours is a part of each day, from From up to To. Both are times since midnight, UTC. If To is not after From, the
// part lasts into the next day.
type Hours struct{ From, To time.Duration }

// Urgent is the size above which a range is split at any time of day. Smaller ranges wait for the hours in
// Budget.Hours. The size is a multiple of MaxRows.
const Urgent = 1.2

// DefaultPlanner is the name of the planner that Default chooses. It finds the plan of the least cost, by the costs of
// plan.Costs. Over a whole load the other planners cost about the same (docs/policy.md).
const DefaultPlanner = "exact"

// Default returns the policy that did best in simulations (docs/policy.md). A range may have at most maxRows rows.
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

// Input is everything that the decisions about the ranges of a bucket depend on. An input that was written as JSON and
// read back gives the same decisions.
type Input struct {
	Now    time.Time
	Policy Policy
	// Moves is the number of partitions in moves that are in flight already, Rows that of rows to copy, in all buckets
	// that share the budget.
	Moves int
	Rows  int64
	// Ranges are neighbouring ranges of one bucket, in the order of their keys.
	Ranges []Range
	// Traffic is the reads and writes per second of the whole bucket if the bucket has more ranges than Ranges; else 0.
	Traffic float64 `json:",omitempty"`
}

// Range is a range of keys of a bucket, with what is known about its partition.
type Range struct {
	Start, End []byte
	// Stats are the counts of the range's partition. While the range moves, they are those of the partition that takes
	// its writes.
	Stats counter.Stats
	// Created is when the partition was made.
	Created time.Time
	// PinUntil is the time until which the cut at the start of the range must stay.
	PinUntil time.Time
	// Moves is true while the range takes part in a move, and until its last move is swept.
	Moves bool
	// Quanta say where the rows of the range lie, by its last recount, if that recount is fresh. The first key is empty
	// and stands for the start of the range. nil: unknown.
	Quanta []counter.Quantum `json:",omitempty"`
	// Small is since when the range has had fewer than MinRows rows, as far as is remembered. Zero: since now, or the
	// range has at least MinRows rows.
	Small time.Time `json:",omitzero"`
	// Newest are the highest keys of the range, or the lowest keys of a range in which keys descend. nil: they have not
	// been read. See Need.
	Newest *Newest `json:",omitempty"`
}

// Newest are the keys at the end of a range where new keys come, ascending. Written has the time at which each key was
// written, in Unix microseconds.
type Newest struct {
	Keys    [][]byte
	Written []int64
}

// Kind is what a decision asks for, such as Split. None asks for nothing.
type Kind string

// The kinds of decisions.
const (
	// Need asks the caller to read the newest keys of a range that may have to be rolled, and to decide again.
	Need    Kind = "need"
	None    Kind = "none"
	Recount Kind = "recount"
	Split   Kind = "split"
	Merge   Kind = "merge"
	Roll    Kind = "roll"
	Refresh Kind = "refresh"
)

// Why is the reason of a decision, in a few words for people.
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
	// Growing: the range has few rows and is left to grow, although a plan by its present rows would merge it.
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
	// Popular: the range should be split by load, but nearly all of its requests are for one key, or for pages that
	// begin at one key.
	Popular   Why = "one popular key"
	Undivided Why = "no key divides it"
	// NoCut: the range should be split, but all its rows lie at one place.
	NoCut Why = "nowhere to cut"
	// NextUnknown: the range should be rolled, but its next keys can't be forecast, and it is not full yet.
	NextUnknown Why = "next keys unknown"
	// Bursts: the first range of a bucket was filled within seconds, and it will be known soon whether more comes.
	Bursts Why = "a burst, perhaps"
	// Emptying: the range has too many tombstones but will soon have no rows, and then a refresh copies nothing.
	Emptying Why = "about to be empty"
)

// Decision says what should be done about some neighbouring ranges, or why nothing should be done.
type Decision struct {
	Kind Kind
	// From and To are the indexes of the ranges: Input.Ranges[From:To].
	From, To int
	// Cuts are all cuts between the start and the end of the ranges after the decision is carried out. Stay is the
	// index of the part that stays in the partition of a single range; negative: no part stays.
	Cuts [][]byte `json:",omitempty"`
	Stay int
	// Rows is the number of rows of the ranges, Copies the number of those that are copied to another partition.
	Rows, Copies int64
	Why          Why
	Text         string
	// Gap is by how much the planned Copies exceed the fewest possible copies: 0.01 is one percent. nil: the cuts are
	// not from a planner.
	Gap *float64 `json:",omitempty"`

	// Until is when the reason of a None ends if nothing changes; zero: unknown.
	Until time.Time `json:",omitzero"`
	// Streams are the places of growth beside which a Split cuts.
	Streams []Stream `json:",omitempty"`
	// Parts is the number of ranges into which a Split should cut. Grown is the number of rows at the horizon, at least
	// Rows.
	Parts int   `json:",omitempty"`
	Grown int64 `json:",omitempty"`
	// Ahead is the number of ranges that a Roll adds beyond the highest key, Rate the number of rows appended per
	// second. Appended is the index of the range that is appended to. A Roll may cut another range, which is empty and
	// lies beyond Appended.
	Ahead, Appended int     `json:",omitempty"`
	Rate            float64 `json:",omitempty"`
	// Reserve is true if Ahead is the number of ranges for Policy.Reserve. That many are cut only if the next keys can
	// be forecast whatever the rate.
	Reserve bool `json:",omitempty"`
	// Oldest is the lowest index of the ranges that a Need asks for: the newest keys of Input.Ranges[Oldest:Appended+1]
	// are read from the highest range down.
	Oldest int `json:",omitempty"`
	// Down is true where keys descend. Then a Roll cuts below the lowest key of Appended, and a Need asks for the
	// lowest keys of Appended.
	Down bool `json:",omitempty"`
}

// Stays reports whether a decision leaves its ranges as they are on purpose, however small they are, until their load
// changes. A plan should not join such ranges. Other small ranges are left alone for a while only: they grow, or are
// merged as soon as the merge is worth its copies.
func (d *Decision) Stays() bool {
	return d.Kind == None && slices.Contains([]Why{Appends, Rolled, AtTail, Pinned, Load, Lonely}, d.Why)
}

// String returns the decision as text for people: its kind, its reason and its explanation.
func (d Decision) String() string { return fmt.Sprintf("%s: %s: %s", d.Kind, d.Why, d.Text) }

// Decide returns the decisions about all ranges of an input, in the order of the ranges. Each range is in exactly one
// decision. Decide is pure. The caller carries out the decisions of the kinds Split, Merge, Roll and Refresh, and
// counts the rows of a Recount.
//
// If one decision is a Need, nothing must be carried out yet. For each Need the caller reads the newest keys of
// Input.Ranges[Appended], sets Range.Newest, and calls Decide again.
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
