// Package adminapi is the HTTP API by which operators reach a process that moves ranges: a
// handler for its admin address, and a client. Both speak JSON.
//
//	GET  /v1/status                          Status
//	GET  /v1/map?bucket=B[&epoch=N]          Map
//	GET  /v1/history?bucket=B[&limit=N]      History
//	POST /v1/moves           Moves        -> Answer
//	POST /v1/apply           Apply        -> Answer
//	GET  /v1/jobs/{id}                       scheduler.Job
//	POST /v1/pause           PauseAsk     -> Paused
//	POST /v1/quiet           Which        -> lines of Progress[Quiet]
//	POST /v1/resume, abort   Which        -> Done
//	POST /v1/verify          Verify       -> lines of VerifyLine
//	POST /v1/backup          Backup       -> lines of Progress[store.Size]
//	POST /v1/sizes?bucket=B               -> lines of Line, each with a Size
//	POST /v1/recount         Recount      -> lines of Line, each with a Recounted
//	POST /v1/layout?bucket=B[&exact=1]    -> lines of Line, each with a plan.Partition
//	GET  /v1/explain?bucket=B                Explanation
//	GET  /v1/buckets?prefix=P&after=NAME&limit=N               Buckets
//	GET  /v1/shape?bucket=B&bars=N&start=K&end=K               Shape
//	GET  /v1/ranges?bucket=B&from=K&limit=N&only=notable       Ranges
//	GET  /v1/usage?bucket=B&prefix=P&delimiter=D               Usage
//	GET  /v1/heat?bucket=B&from=T&to=T&width=N&height=N        Heat
//	     also &start=K&end=K or &prefix=P, &metric=writes&metric=reads, …
//	GET  /v1/moves?bucket=B&before=ID&limit=N                  Moved
//	GET  /v1/cluster                                           Cluster
//	POST /v1/plan            PlanAsk      -> Planned
//	GET  /v1/events          server-sent events: status, column (Sampled), move, end
//
// Keys K in queries are percent-encoded bytes; times T are RFC 3339 or Unix seconds. All parameters
// but bucket may be left out. The address itself answers GET, POST {"token":"…"} and DELETE of
// /v1/session: a browser signs in with the admin token and gets a cookie, for twelve hours.
//
// An error is answered by a Problem. A process that does not lead answers requests for moves
// with 421 and the leader's address.
package adminapi

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Key is a key in JSON: a string, or {"b64":"…"} if it is not UTF-8.
type Key = keytext.Key

// Span is an interval of keys; an empty end is plus infinity.
type Span = partmap.Span

// Map is the map of a bucket at one epoch.
type Map struct {
	Bucket     string      `json:"bucket"`
	Epoch      uint64      `json:"epoch"`
	Partitions []Partition `json:"partitions"`
}

// Partition is a range with the partition that holds it.
type Partition struct {
	ID string `json:"id"`
	Span
	Phase string `json:"phase"`
	// To is the destination while it moves, else empty.
	To string `json:"to"`
	// SweepPending: its last move has not been swept yet.
	SweepPending bool `json:"sweep_pending,omitempty"`
	// PinnedUntil is how long its start stays a cut.
	PinnedUntil time.Time `json:"pinned_until,omitzero"`
}

// History is the epochs of a bucket that are still known, the newest first.
type History struct {
	Bucket string  `json:"bucket"`
	Epochs []Epoch `json:"epochs"`
}

// Epoch is one version of a bucket's map.
type Epoch struct {
	Epoch   uint64    `json:"epoch"`
	Changed time.Time `json:"changed"`
	State   string    `json:"state"`
	Ranges  uint64    `json:"ranges"`
	Batches []Batch   `json:"batches"`
}

// Batch is moves that share their swaps and waits.
type Batch struct {
	ID     uint64 `json:"id"`
	Phase  string `json:"phase"` // settled: to be swept
	Ranges uint64 `json:"ranges"`
	// Rows so far, of a batch in flight.
	Copied   int64 `json:"copied,omitempty"`
	Verified int64 `json:"verified,omitempty"`
	Mended   int64 `json:"mended,omitempty"`
	// Searched are the rows that the sweep has searched for markers, Swept the markers.
	Searched int64 `json:"searched,omitempty"`
	Swept    int64 `json:"swept,omitempty"`
}

// Moves requests moves of one bucket.
type Moves struct {
	Bucket string `json:"bucket"`
	scheduler.Ask
	// DryRun only reports what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// Apply requests the moves of a plan.
type Apply struct {
	Bucket     string       `json:"bucket"`
	Partitions []plan.Range `json:"partitions"`
	Moves      []plan.Move  `json:"moves"`
	// DryRun only reports what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// Answer is what a request for moves comes to.
type Answer struct {
	Bucket string `json:"bucket"`
	scheduler.Plan
	// Job is absent after a dry run.
	Job *scheduler.Job `json:"job,omitempty"`
}

// Status is what goes on.
type Status struct {
	// Leader is absent in the embedded form, where the one process leads.
	Leader *rebalance.Holder `json:"leader,omitempty"`
	// Leading: this process moves ranges.
	Leading bool `json:"leading"`
	// Shards are the processes that lead shards of the buckets: Leader is that of shard 0. Absent in the embedded form.
	Shards []Share `json:"shards,omitempty"`
	// Pauses are kept in the store: of all moves, and of single buckets.
	Pauses []Paused `json:"pauses"`
	// PausesError is set if the pauses can't be read.
	PausesError string `json:"pauses_error,omitempty"`
	// Counting is how sizes are known, as the processes of a shared store have agreed. Unattended
	// says what is not looked after, and why; absent if all is.
	Counting   string `json:"counting,omitempty"`
	Unattended string `json:"unattended,omitempty"`
	// OtherLimits says that processes of a shared store have different limits of partitions; absent if
	// they have the same.
	OtherLimits string `json:"other_limits,omitempty"`
	// Rate is the present limit of rows per second, MostRate its maximum; 0: no limit.
	Rate     int             `json:"rate"`
	MostRate int             `json:"max_rate"`
	Buckets  []Bucket        `json:"buckets"`
	Jobs     []scheduler.Job `json:"jobs"`
	Scan     scheduler.Scan  `json:"scan"`
	Round    Round           `json:"balance"`
	// Cleaning is absent where this process does not stand by to clean buckets of objects.
	Cleaning *cleaning.Status `json:"cleaning,omitempty"`
	// Retention is absent where this process has no rules.
	Retention *rebalance.RetentionStatus `json:"retention,omitempty"`
}

// Share is what one process leads of the moves: the buckets of some shards. The shard of a bucket is the second
// hexadecimal digit of its id.
type Share struct {
	Name   string `json:"name"` // empty: nobody leads them
	Admin  string `json:"admin,omitempty"`
	Here   bool   `json:"here"` // it is the process that answers
	Shards []int  `json:"shards"`
}

// Bucket is one with something to do.
type Bucket struct {
	// Name is absent if it is not known.
	Name    string  `json:"bucket,omitempty"`
	ID      string  `json:"id"`
	Epoch   uint64  `json:"epoch"`
	State   string  `json:"state"`
	Ranges  uint64  `json:"ranges"`
	Batches []Batch `json:"batches"`
	// Goals that have not ended.
	Goals   int  `json:"goals"`
	Running bool `json:"running"`
	Paused  bool `json:"paused"`
	// Failures of what is tried again, the newest first.
	Failures []scheduler.Failure `json:"failures"`
}

// Round is the last look at the sizes of partitions, and totals since the process began.
type Round struct {
	Every string    `json:"every"` // 0s: none are made
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Everything was looked at, not only what was written to since the look before.
	Everything bool `json:"everything"`
	Buckets    int  `json:"buckets"`
	Ranges     int  `json:"ranges"`
	// Waiting recounts; Counted is how many were made, and Rows what they read.
	Waiting int   `json:"recounts_waiting"`
	Counted int64 `json:"recounts"`
	Rows    int64 `json:"counted_rows"`
	// Decided counts decisions, like "split: rows"; Moved the rows that moves copied, by
	// the kind of decision.
	Decided map[string]int64 `json:"decided"`
	Moved   map[string]int64 `json:"moved_rows"`
	// Late is for how long the bucket that waits longest has been due to be looked at.
	Late string `json:"late,omitempty"`
	// CountersAwaySince is when the counters have last begun not to answer; absent if they do.
	CountersAwaySince time.Time `json:"counters_away_since,omitzero"`
	// Why nothing is done about some ranges outside the limits.
	Why   []Reason `json:"why"`
	Error string   `json:"error,omitempty"`
}

// Reason is why nothing is done about a range.
type Reason struct {
	Bucket string `json:"bucket,omitempty"`
	ID     string `json:"id"`
	Span
	Text string `json:"why"`
}

// Which bucket a pause, a wait, a resumption or an abort is of; empty: all.
type Which struct {
	Bucket string `json:"bucket,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// Done is the answer to Which.
type Done struct {
	// Dropped goals, of an abort.
	Dropped int `json:"dropped"`
	// Lifted: a resumption ended a pause.
	Lifted bool `json:"lifted,omitempty"`
}

// PauseAsk requests a pause of the moves of a bucket, or of all.
type PauseAsk struct {
	Which
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// ForS is after how many seconds it ends automatically; 0: never.
	ForS float64 `json:"for_s,omitempty"`
}

// Paused is a pause.
type Paused struct {
	// Bucket is its name, or else its id; absent if all moves are paused.
	Bucket string `json:"bucket,omitempty"`
	pause.Pause
	// Already: it was paused before.
	Already bool `json:"already,omitempty"`
}

// Quiet is how far a wait is until nothing moves.
type Quiet struct {
	// Roots that were looked at; Scanned: these are all.
	Roots   int  `json:"roots"`
	Scanned bool `json:"scanned"`
	// Moving are the buckets with batches in flight, the first thousand of MovingBuckets.
	Moving        []QuietBucket `json:"moving"`
	MovingBuckets int           `json:"moving_buckets"`
}

// QuietBucket is a bucket with batches in flight.
type QuietBucket struct {
	Bucket string `json:"bucket"`
	// Phases are those of its batches.
	Phases []string `json:"phases"`
}

// Backup requests a backup into a new directory of the server's machine.
type Backup struct {
	Dir string `json:"dir"`
}

// Problem is an error.
type Problem struct {
	Error string `json:"error"`
	// Kind is the store.Kind.
	Kind string `json:"kind"`
	// Leader is the process that can answer.
	Leader *rebalance.Holder `json:"leader,omitempty"`
}
