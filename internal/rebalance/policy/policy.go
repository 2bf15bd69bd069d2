// Package policy decides when and where the ranges of a bucket are split, merged or rewritten, when empty ranges are
// cut ahead of appends (a roll), and when a partition is counted exactly (a recount). A decision follows from the
// estimates of counters, which may be wrong, and from recounts, which are exact. A decision to do nothing carries its
// reason. The running program and the simulation (packages balancer and policysim) both carry out what Decide returns.
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

// Policy has the limits that decide when the key ranges of a bucket are split, merged or rewritten, e.g. the maximum
// number of rows of a range. Policy also has the parameters of the forecasts of growth. The function Default returns a
// usable Policy.
type Policy struct {
	// MaxRows is the maximum number of rows of a range. A range with more rows is split.
	MaxRows int64
	// MinRows is the minimum number of rows of a range. A range with fewer rows is merged with a neighbour. If MinRows
	// is 0, ranges are never merged.
	MinRows int64
	// TargetRows is the number of rows that each new range of a split should have. TargetRows is also the maximum
	// number of rows of a range that results from a merge.
	TargetRows int64
	// MaxBytes is the maximum number of bytes of keys and values in a range, as counted. If rows are so large that
	// MaxRows of them would have more than MaxBytes bytes, all limits in rows are lowered for that range. If MaxBytes
	// is 0, bytes are not limited.
	MaxBytes int64
	// MaxDead is the maximum number of tombstones (marks of deleted rows) in a partition. The rows of a partition with
	// more tombstones are copied to a new partition, which has no tombstones. If MaxDead is 0, tombstones are not
	// limited. For comparison, Cassandra warns at 1,000 tombstones in one read, and fails at 100,000.
	MaxDead int64
	// LoadShare and LoadPerS limit the load of a range. A range is split between the requested keys if, for some
	// minutes, the range takes both at least the share LoadShare (0 to 1) of the reads and writes of its bucket, and at
	// least LoadPerS reads and writes per second. If LoadPerS is 0, no range is split because of its load.
	LoadShare, LoadPerS float64

	// Horizon is the time for which the ranges that result from a split should keep within the limits. A range is split
	// if it has more than MaxRows rows. It is split earlier, from EarlyRows rows on, if it will have more than MaxRows
	// when the next decision takes effect. That is after Lead plus the time to move the rows.
	//
	// GrowBy limits the forecast of growth: a range is expected to gain at most GrowBy times its present rows. If
	// GrowBy is 0, no growth is forecast. RushBy replaces GrowBy in a rush, in which a range of a bucket with more than
	// MaxRows rows gains more than MaxRows rows during one move.
	//
	// Only growth that is spread over the whole range counts, which means that counter.Stats.Spread is at least Spread.
	// Cuts in many places do not help if a range grows at one place.
	Horizon   time.Duration
	GrowBy    float64
	RushBy    float64
	EarlyRows int64
	Spread    float64

	// AppendShare and AppendsPerS define when a range is appended to. At least the share AppendShare (0 to 1) of the
	// puts of the range must go above its highest key, and there must be at least AppendsPerS of such puts per second.
	// For a range that is appended to, empty ranges are cut ahead of the next keys.
	AppendShare, AppendsPerS float64
	// Lead is the time from one decision until the ranges that the next decision cuts take puts: one interval between
	// decisions, and two waits. MovedPerS is the number of rows that can be moved per second. If MovedPerS is 0, the
	// speed of moves is not limited.
	Lead      time.Duration
	MovedPerS float64
	// Reserve is the time for which a stream of appends should find empty ranges at its present rate, even if no range
	// can be cut during that time. Ranges are reserved only for appends that have filled ranges before, and whose keys
	// contain numbers that tell the next keys. If Reserve is 0, the time is 2 x Lead, as for other appends.
	Reserve time.Duration `json:",omitempty"`

	// Cool is a waiting time with three uses. A partition that is younger than Cool is not split because of its load. A
	// merged range should stay within the limits for at least Cool at its present growth. A merge that copies a full
	// range is worth its cost when there has been one unnecessary range for 6 times Cool. A merge that copies fewer
	// rows is worth its cost sooner, in proportion.
	Cool time.Duration
	// Fresh is the maximum age of the exact count of a range (recount) when the range is cut by that count.
	Fresh time.Duration
	// Recount is the least time between two exact counts (recounts) of the rows of a partition. Each recount that leads
	// to no action doubles the time until the next recount, up to MaxRecount.
	Recount, MaxRecount time.Duration

	Budget Budget

	// Effect is the time from the decision to cut a range until the new ranges take puts: two waits.
	Effect time.Duration
	// Planner is the name of the algorithm that finds the cuts of splits, and one of the names that the function
	// Planners returns. Seed is the seed of the random numbers of the genetic planner.
	Planner string
	Seed    int64
}

// Budget limits the moves that copy rows at the same time, and the hours of the day at which rows are copied. Cuts of
// empty ranges ahead of appends copy no rows and do not count.
type Budget struct {
	// Moves is the maximum number of partitions that take part in unfinished moves, as sources or destinations. Rows is
	// the maximum number of rows that these moves copy. A limit of 0 means no limit. A move that is larger than the
	// budget may begin when no other move is unfinished.
	Moves int
	Rows  int64
	// Hours are the daily periods (UTC) during which rows may be moved. If Hours is empty, rows may be moved at any
	// time. A range with more than Urgent (1.2) times MaxRows rows is split at any time.
	Hours []Hours
}

// Hours is a daily period, such as 22:00 to 04:00. From and To are times since midnight, UTC; in the example they are
// 22h and 4h. If To is not after From, the period ends on the next day.
type Hours struct{ From, To time.Duration }

// Urgent is the size above which a range is split at any time of day, as a multiple of the maximum number of rows
// (Policy.MaxRows). The splits of smaller ranges wait for the daily periods in Budget.Hours.
const Urgent = 1.2

// DefaultPlanner is the name of the planner in the policy that Default returns. A planner finds the keys at which a
// range is cut. The default planner finds the cuts of least cost, by the costs of rebalance.Costs. Over a whole load
// the other planners cost about the same (docs/policy.md).
const DefaultPlanner = "exact"

// Default returns the policy that did best in simulations (docs/policy.md). maxRows is the maximum number of rows of a
// range, from which the other limits in rows follow, e.g. a quarter of maxRows as the minimum.
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

// Input is everything that the decisions about the ranges of a bucket depend on: the time, the policy, and the ranges
// with their counts. An Input that was written as JSON and read back gives the same decisions, so decisions can be
// repeated later.
type Input struct {
	Now    time.Time
	Policy Policy
	// Moves is the number of partitions that take part in unfinished moves, and Rows is the number of rows that these
	// moves copy. Both cover all buckets that share the budget.
	Moves int
	Rows  int64
	// Ranges are the ranges to decide about: neighbouring ranges of one bucket, in the order of their keys.
	Ranges []Range
	// Traffic is the number of reads and writes per second of the whole bucket if the bucket has more ranges than
	// Ranges. If Ranges has all ranges of the bucket, Traffic is 0.
	Traffic float64 `json:",omitempty"`
}

// Range is an interval of keys of a bucket, with the counts of the partition that stores the rows of these keys. Range
// is a part of an Input.
type Range struct {
	Start, End []byte
	// Stats are the counts of the range's partition, e.g. of rows and tombstones. While the range moves between
	// partitions, Stats are the counts of the partition that takes the writes.
	Stats counter.Stats
	// Created is the time at which the partition of the range was made. A young partition is not split because of its
	// load.
	Created time.Time
	// PinUntil is the time until which the range must keep its start, so that the range is not merged with the range
	// below.
	PinUntil time.Time
	// Moves is true while the range takes part in a move of rows between partitions. Moves stays true until the markers
	// that the last move has left behind are deleted.
	Moves bool
	// Quanta are runs of neighbouring rows with the number of rows of each, which tell where the rows of the range lie.
	// The first key is empty and stands for the start of the range. Quanta is nil if no fresh exact count has found the
	// runs.
	Quanta []counter.Quantum `json:",omitempty"`
	// Small is the time since when the range has had fewer than Policy.MinRows rows, as far as is remembered. A merge
	// waits until the range has been small for some time. Small is zero if the range has become small just now, or is
	// not small.
	Small time.Time `json:",omitzero"`
	// Newest are the highest keys of the range, or the lowest keys if keys descend. A forecast of the next keys uses
	// them. Newest is nil if these keys have not been read, and a decision of the kind Need then asks for them.
	Newest *Newest `json:",omitempty"`
}

// Newest are the keys at the end of a range where new keys come, in ascending order. A forecast of the next keys uses
// these keys. Written has the time at which each key was written, in Unix microseconds.
type Newest struct {
	Keys    [][]byte
	Written []int64
}

// Kind says what a decision does with a range, e.g. "split". The kind None means that nothing is done.
type Kind string

// These are the kinds of decisions about the ranges of a bucket: what to do with one range or with neighbouring ranges,
// from nothing (None) to a copy of all rows (Refresh).
const (
	// Need is the kind of a decision that asks the caller to read the newest keys of a range, and then to decide again.
	// The range may get empty ranges ahead of its appends, and the newest keys tell where these empty ranges must lie.
	Need    Kind = "need"
	None    Kind = "none"    // do nothing
	Recount Kind = "recount" // count the rows of the range exactly
	Split   Kind = "split"   // cut the range into several ranges
	Merge   Kind = "merge"   // join neighbouring ranges
	Roll    Kind = "roll"    // cut empty ranges ahead of appends
	Refresh Kind = "refresh" // copy the rows to a new partition without tombstones
)

// Why is the reason of a decision in a few words for people, e.g. "one key only".
type Why string

// These are the reasons to act on a range, which means to split, merge, rewrite or count the range.
const (
	Rows     Why = "rows"     // the range has more rows than the maximum, or fewer than the minimum
	Forecast Why = "forecast" // the range will have more rows than the maximum
	Load     Why = "load"     // the range takes too many of the bucket's reads and writes
	Appends  Why = "appends"  // the range is about to be full, and takes puts at one end
	Dead     Why = "dead"     // the range has too many tombstones
	Unknown  Why = "unknown"  // the number of rows of the range is not known
	Suspect  Why = "suspect"  // the range is outside the limits by an estimate, which may be wrong
)

// These are the reasons to do nothing with a range, e.g. because the range is within its limits, or because rows of the
// range are being moved.
const (
	Within Why = "within limits"
	// Growing is the reason to leave a range with few rows as it is: the range still grows. A planner that sees only
	// the present number of rows would merge the range.
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
	// Popular is the reason not to split a range because of its load: nearly all of its requests are for one key, or
	// for pages of a listing that begin at one key.
	Popular   Why = "one popular key"
	Undivided Why = "no key divides it"
	// NoCut is the reason not to split a range that is too large: all its rows lie at one place.
	NoCut Why = "nowhere to cut"
	// NextUnknown is the reason not to cut empty ranges ahead of the appends to a range: the next keys can't be
	// forecast, and the range is not full yet.
	NextUnknown Why = "next keys unknown"
	// Bursts is the reason to wait before the first split of a bucket: the first range was filled within seconds, and a
	// few more seconds will show whether more rows come.
	Bursts Why = "a burst, perhaps"
	// Emptying is the reason not to rewrite a range that has too many tombstones: the range will soon have no rows, and
	// a rewrite then copies nothing.
	Emptying Why = "about to be empty"
)

// Decision says what should be done with one range or with several neighbouring ranges of a bucket, or why nothing
// should be done.
type Decision struct {
	Kind Kind
	// From and To are the indexes of the ranges that the decision is about, which are Input.Ranges[From:To].
	From, To int
	// Cuts are the keys at which the interval of the decision's ranges is cut after the decision is carried out. The
	// start and the end of the interval are not in Cuts. Stay is the index of the resulting range that stays in the old
	// partition, if the decision is about a single range. Stay is negative if no rows stay in their partition.
	Cuts [][]byte `json:",omitempty"`
	Stay int
	// Rows is the number of rows of the decision's ranges. Copies is the number of those rows that are copied to
	// another partition.
	Rows, Copies int64
	Why          Why
	Text         string
	// Gap is the excess of the planned Copies over the fewest possible copies, as a share: 0.01 is one percent. Gap is
	// nil if no planner found the cuts.
	Gap *float64 `json:",omitempty"`

	// Until is the time at which the reason to do nothing ends if nothing changes. Until is set only for the kind None,
	// and is zero if that time is unknown.
	Until time.Time `json:",omitzero"`
	// Streams are the places at which the range of a Split grows. The split cuts beside these places, not in the middle
	// of the range.
	Streams []Stream `json:",omitempty"`
	// Parts is the number of ranges into which a Split should cut its range. Grown is the number of rows that are
	// expected in the range after Policy.Horizon, and is at least Rows.
	Parts int   `json:",omitempty"`
	Grown int64 `json:",omitempty"`
	// Ahead is the number of empty ranges that a Roll adds beyond the highest key. Rate is the number of rows appended
	// per second. Appended is the index of the range that is appended to. The range that a Roll cuts may be another
	// one, which is empty and lies beyond Appended.
	Ahead, Appended int     `json:",omitempty"`
	Rate            float64 `json:",omitempty"`
	// Reserve is true if Ahead is the number of empty ranges for the time Policy.Reserve. So many ranges are cut only
	// if a forecast tells the next keys at any rate of appends.
	Reserve bool `json:",omitempty"`
	// Oldest is the lowest index of the ranges whose newest keys a Need asks for. The caller reads the keys of
	// Input.Ranges[Oldest:Appended+1], beginning with the highest range.
	Oldest int `json:",omitempty"`
	// Down is true if each new key is lower than the keys before. A Roll then cuts below the lowest key of the range
	// Appended, and a Need asks for the lowest keys of that range.
	Down bool `json:",omitempty"`
}

// Stays reports whether a decision leaves its ranges as they are on purpose, however small they are, until their load
// changes. A plan of all ranges should not merge such ranges. Other small ranges are left only for a while.
func (d *Decision) Stays() bool {
	// Those other ranges grow, or are merged when a merge is worth its copies.
	return d.Kind == None && slices.Contains([]Why{Appends, Rolled, AtTail, Pinned, Load, Lonely}, d.Why)
}

// String returns the decision as one line of text for people: the kind, the reason and the explanation.
func (d Decision) String() string { return fmt.Sprintf("%s: %s: %s", d.Kind, d.Why, d.Text) }

// Decide returns the decisions about all ranges of an input, in the order of the ranges. Each range is in exactly one
// decision. Decide is a pure function. The caller carries out the decisions of the kinds Split, Merge, Roll and
// Refresh, and counts the rows of a Recount.
//
// If the result has a decision of the kind Need, nothing must be carried out yet. For each Need the caller reads the
// newest keys of Input.Ranges[Appended], sets Range.Newest to these keys, and calls Decide again.
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
