package rebalance

import (
	"context"
	"strings"
)

// A Planner computes a plan: better ranges for a bucket, and the moves that lead to them. The layout (the bucket as it
// is) and the limits must be valid; later changes of the layout do not change the plan. If no plan meets all limits,
// the planner returns the best plan that it found, and Plan.Notes say which limits are not met. A planner fails only if
// ctx ends first. It is safe for concurrent use.
type Planner interface {
	Plan(ctx context.Context, l *Layout, limits Limits, o Objective) (*Plan, error)
}

// A Plan says how the ranges of a bucket should change: it has the new ranges, and the moves that lead to them.
type Plan struct {
	Bucket string `json:"bucket"`
	// Planner is the name of the planner that made the plan, e.g. "exact".
	Planner string `json:"planner"`
	// Seed and Generations make a planner that uses random numbers repeat the plan; they are nil for other planners.
	Seed        *int64 `json:"seed,omitempty"`
	Generations *int   `json:"generations,omitempty"`
	// Ranges are the new ranges of the bucket, in the order of their keys. They cover all keys.
	Ranges []Range `json:"partitions"`
	// Moves are in the order of their keys. There is one for each piece of today's ranges that goes to another
	// partition.
	Moves      []Move     `json:"moves"`
	RowsMoved  int64      `json:"rows_moved"`
	Optimality Optimality `json:"optimality"`
	Score      Score      `json:"objective"`
	// Notes are sentences for people that say which limits the plan does not meet, and why.
	Notes []string `json:"notes"`
}

// A Range is one range of keys after a plan, from Start up to the start of the next range.
type Range struct {
	// ID is the id of an old partition if the range keeps it. If not, ID is a placeholder like new-1, for which a
	// random id is drawn when the plan is applied.
	ID    string `json:"id"`
	Start Key    `json:"start"`
	Rows  int64  `json:"rows"`
	// Pinned is true if every plan must have a range that begins at this Start.
	Pinned bool `json:"pinned,omitempty"`
}

// A Move takes the rows of an interval of keys from one partition (From) to another (To). The interval begins at Start
// and ends below End; an empty End is plus infinity. From and To are ids of partitions.
type Move struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Start  Key    `json:"start"`
	End    Key    `json:"end"`
	Rows   int64  `json:"rows"`
	Reason Reason `json:"reason"`
}

// A Reason says why a plan moves rows.
type Reason struct {
	// Cause is one word that says what is wrong with the range that moves:
	//   - split: the range has more rows than the maximum,
	//   - merge: the range has fewer rows than the minimum, or lies next to such a range,
	//   - load: the range has more writes than the limit,
	//   - forecast: the range will have more rows than the maximum at the horizon,
	//   - even: nothing; the move brings ranges nearer to the target.
	Cause string
	// Text is a sentence for people.
	Text string
}

func (r Reason) String() string { return r.Cause + ": " + r.Text }

// MarshalText returns the reason for a move as one string for JSON, e.g. "split: p7 has 120,000 rows, over max_rows
// 100,000".
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText sets the reason from the string that MarshalText returns. It never fails.
func (r *Reason) UnmarshalText(text []byte) error {
	cause, why, _ := strings.Cut(string(text), ": ")
	*r = Reason{cause, why}
	return nil
}

// Optimality compares the number of rows that a plan moves with the fewest rows that any plan must move.
type Optimality struct {
	// LowerBound is a number of rows: no plan with the fewest possible ranges outside the limits moves fewer rows. If
	// the plan itself has more ranges under the minimum than necessary, the bound is that of plans that ignore the
	// minimum.
	LowerBound int64 `json:"rows_moved_lower_bound"`
	// Gap is (rows moved - bound) / bound: 0.01 is one percent above the bound. A bound of 0 counts as 1.
	Gap float64 `json:"gap"`
}
