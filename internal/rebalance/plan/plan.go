package plan

import (
	"context"
	"strings"
)

// A Planner finds a better layout. The layout and limits must be valid; the plan
// that comes back refers to no memory of theirs that anyone writes. A planner
// never fails for lack of a good plan: it returns the best it found and says in
// Notes what could not be had. It fails when ctx ends first.
//
// Planners may be used from several goroutines at once.
type Planner interface {
	Plan(ctx context.Context, l *Layout, limits Limits, o Objective) (*Plan, error)
}

// A Plan leads from a layout to a better one.
type Plan struct {
	Bucket string `json:"bucket"`
	// Planner is who made it.
	Planner string `json:"planner"`
	// Seed and Generations repeat the plan of a planner that draws lots; nil for
	// the others.
	Seed        *int64 `json:"seed,omitempty"`
	Generations *int   `json:"generations,omitempty"`
	// Ranges tile all keys, in their order.
	Ranges []Range `json:"partitions"`
	// Moves are in the order of their keys: one for each part of a range of today
	// that goes to another partition.
	Moves      []Move     `json:"moves"`
	RowsMoved  int64      `json:"rows_moved"`
	Optimality Optimality `json:"optimality"`
	Score      Score      `json:"objective"`
	// Notes say what the plan could not do, and why.
	Notes []string `json:"notes"`
}

// A Range of a plan, up to the start of the next.
type Range struct {
	// ID is an id of the layout where the range keeps it, else a placeholder like
	// new-1, for which a fresh id is drawn when the plan is applied.
	ID    string `json:"id"`
	Start Key    `json:"start"`
	Rows  int64  `json:"rows"`
	// Pinned says that the start is pinned.
	Pinned bool `json:"pinned,omitempty"`
}

// A Move takes the rows from Start up to End (empty: plus infinity) from one
// partition to another.
type Move struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Start  Key    `json:"start"`
	End    Key    `json:"end"`
	Rows   int64  `json:"rows"`
	Reason Reason `json:"reason"`
}

// A Cause is why a move is in a plan, in one word.
type Cause string

// The causes of moves.
const (
	Split    Cause = "split"    // more rows than the maximum
	Merge    Cause = "merge"    // fewer rows than the minimum, or next to such a range
	Load     Cause = "load"     // more writes than the limit
	Forecast Cause = "forecast" // more rows than the maximum at the horizon
	Even     Cause = "even"     // nearer to the target
)

// A Reason is why a move is in a plan.
type Reason struct {
	Cause Cause
	Text  string
}

func (r Reason) String() string { return string(r.Cause) + ": " + r.Text }

// MarshalText makes a reason one string in JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads that string.
func (r *Reason) UnmarshalText(text []byte) error {
	cause, why, _ := strings.Cut(string(text), ": ")
	*r = Reason{Cause(cause), why}
	return nil
}

// Optimality compares the rows that a plan moves with the fewest possible.
type Optimality struct {
	// LowerBound are the rows that every plan with as few ranges over the maximum
	// and under the minimum must move. Where a plan leaves more of them under the
	// minimum than it must, the bound is that of plans that ignore the minimum.
	LowerBound int64 `json:"rows_moved_lower_bound"`
	// Gap is (rows moved - bound) / bound: 0.01 is one percent above. A bound of
	// 0 is taken for 1.
	Gap float64 `json:"gap"`
}
