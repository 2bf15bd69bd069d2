// Package policy says when the ranges of a bucket are to be split, merged, rolled or
// refreshed, and when a partition is to be counted: from what counters say of
// them, which may be wrong, and from recounts, which are not. Every "no" comes with
// its reason.
//
// It is pure: no I/O, neither the time nor chance of its own, and no memory.
// Calling it again with the same is harmless.
package policy

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Policy is when to act. The zero value acts on nothing; begin with Default.
type Policy struct {
	// MaxRows is the most rows of a range: what has more is split.
	MaxRows int64
	// MinRows is the fewest: what has fewer is merged with a neighbour. 0: never.
	MinRows int64
	// TargetRows is what parts of a split are near to, and the most that a merge may
	// come to.
	TargetRows int64
	// MaxBytes is the most bytes of a range; 0 is any.
	MaxBytes int64
	// MaxDead is how many tombstones a partition may hold before it is refreshed; 0 is
	// any. Cassandra warns at 1,000 in one read and fails at 100,000.
	MaxDead int64
	// LoadShare is how much of its bucket's writes and reads one range may take, 0 to
	// 1, if that is more than LoadPerS; LoadPerS 0: load splits nothing.
	LoadShare, LoadPerS float64

	// Horizon is how far growth is looked ahead when a range is split: its parts are to
	// keep the limits until then. It is split when it has more than MaxRows, or will have
	// before the next judgement takes effect (within Lead, and the time that its rows take
	// to be moved) and has EarlyRows at least. No more is foreseen than GrowBy times the
	// rows that there are, with 0 nothing; in a rush, which is growth by more than MaxRows
	// in the time that it takes to move as many, RushBy times MaxRows.
	// Only growth that is spread over the range counts (Spread, see counter.Stats): what
	// grows at one end is not helped by cuts all over.
	Horizon   time.Duration
	GrowBy    float64
	RushBy    float64
	EarlyRows int64
	Spread    float64

	// AppendShare of puts above the highest key makes a range one that is appended
	// to, if there are AppendsPerS of them. It is rolled.
	AppendShare, AppendsPerS float64
	// Lead is how long it takes from one judgement until what the next one decides
	// takes puts: an interval, and two waits. MovedPerS is how many rows can be moved per
	// second meanwhile; 0: any number.
	Lead      time.Duration
	MovedPerS float64

	// Cool is how old partitions must be before they are merged, refreshed or split
	// by load; and for how long a merge is to last, growing as now.
	Cool time.Duration
	// Fresh is how old a recount may be to decide.
	Fresh time.Duration
	// Recount is the least time between two recounts of a partition; each one that
	// finds nothing to do doubles it, up to MaxRecount.
	Recount, MaxRecount time.Duration

	Budget Budget
}

// Budget limits what is under way at once. Rolls move nothing and are free.
type Budget struct {
	// Moves and Rows in flight; 0 is any. A move that is larger than all of it may
	// begin when nothing else is in flight.
	Moves int
	Rows  int64
	// Hours of the day (UTC) at which rows may be moved; none: at any. Ranges over
	// Urgent times MaxRows are split at any hour.
	Hours []Hours
}

// Hours are a part of each day, from From up to To since midnight. Where To is not
// after From, it goes on to the next day.
type Hours struct{ From, To time.Duration }

// Urgent is at how many times the maximum a split waits for no hour.
const Urgent = 1.2

// Default returns the policy for a maximum of rows: the one that did best in
// simulation (docs/policy.md).
func Default(maxRows int64) Policy {
	return Policy{
		MaxRows: maxRows, MinRows: maxRows / 4, TargetRows: max(1, maxRows/10*6+maxRows%10*6/10),
		MaxDead:   50_000,
		LoadShare: 0.5, LoadPerS: 2000,
		Horizon: 3 * time.Minute, GrowBy: 2, RushBy: 20, EarlyRows: max(2, maxRows/5), Spread: 0.75,
		AppendShare: 0.7, AppendsPerS: 0.001, Lead: 40 * time.Second,
		Cool: 30 * time.Minute, Fresh: 2 * time.Minute,
		Recount: time.Minute, MaxRecount: time.Hour,
		Budget: Budget{Moves: 256, Rows: 20 * maxRows},
	}
}

// Gain is how many rows a range is expected to have more when its next turn to be
// merged comes.
func (p *Policy) Gain(s *counter.Stats) float64 {
	return max(0, s.GrowthRowsPerS) * max(p.Cool, p.Horizon).Seconds()
}

// Layout is a bucket at one moment.
type Layout struct {
	// Ranges tile all keys, in their order.
	Ranges []Range
	// Broken says what is wrong with the map; empty where nothing is.
	Broken string
	// Moves and Rows are in flight already, in all buckets that share the budget.
	Moves int
	Rows  int64
}

// Range is a range of a layout with what is known of its partition.
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
}

// Kind is what is to be done.
type Kind string

// The kinds of verdicts.
const (
	None    Kind = "none"
	Recount Kind = "recount"
	Split   Kind = "split"
	Merge   Kind = "merge"
	Roll    Kind = "roll"
	Refresh Kind = "refresh"
)

// Why is the reason of a verdict in one word.
type Why string

// The reasons of what is done.
const (
	Rows     Why = "rows"     // more than the maximum, or fewer than the minimum
	Bytes    Why = "bytes"    // more than the maximum
	Forecast Why = "forecast" // will have more than the maximum
	Load     Why = "load"     // takes too much of the bucket's traffic
	Appends  Why = "appends"  // is about to be full
	Dead     Why = "dead"     // too many tombstones
	Unknown  Why = "unknown"  // its size is not known
	Suspect  Why = "suspect"  // its size is counted as outside the limits
)

// The reasons of what is not done.
const (
	Within   Why = "within limits"
	Broken   Why = "map broken"
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
)

// Verdict is what is to be done about a run of ranges, or why nothing is.
type Verdict struct {
	Kind Kind
	// From and To name the ranges of the layout: those from From up to To.
	From, To int
	// Parts is into how many ranges a Split cuts; Ahead how many ranges a Roll adds
	// beyond the highest key. The range that a Roll cuts may be an empty one above the
	// one that is appended to, which is Appended.
	Parts, Ahead, Appended int
	// Rate is how many rows per second are appended, of a Roll.
	Rate float64
	// Rows that the ranges have; Copies, those that change partition, if all parts are
	// alike; Grown, those that there will be at the horizon, never fewer than Rows.
	Rows, Copies, Grown int64
	Why                 Why
	Text                string
}

// String is the kind with its reason.
func (v Verdict) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Why, v.Text) }
