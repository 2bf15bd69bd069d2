package executor

import (
	"sync/atomic"

	"github.com/evenkeel/evenkeel/rebalance/migrate"
)

// EventKind says what an Event is about.
type EventKind uint8

const (
	// Did: an effect ended, well or with Err.
	Did EventKind = iota
	// GoalMet: the map is as a goal wants it.
	GoalMet
	// GoalRefused: a goal does not fit the map; Err says why.
	GoalRefused
)

// Event is something that happened.
type Event struct {
	Kind   EventKind
	Effect migrate.Effect // of Did
	Goal   *migrate.Goal  // of GoalMet and GoalRefused
	Err    error
}

// Progress counts rows since the executor was made. How many are still to go is
// for those to say who know the sizes of ranges; a rate is the difference of two.
type Progress struct {
	// Copied and Verified rows of sources; Mended are those that verifying found
	// missing; Swept are markers.
	Copied, Verified, Mended, Swept int64
}

type progress struct{ copied, verified, mended, swept atomic.Int64 }

// Progress returns the counts of the moment.
func (x *Executor) Progress() Progress {
	p := &x.progress
	return Progress{Copied: p.copied.Load(), Verified: p.verified.Load(), Mended: p.mended.Load(), Swept: p.swept.Load()}
}
