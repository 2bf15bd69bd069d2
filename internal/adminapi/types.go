// Package adminapi is the HTTP API by which operators reach a process that moves ranges: a handler for its admin
// address, and a client. Both use JSON.
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
//	POST /v1/layout?bucket=B[&exact=1]    -> lines of Line, each with a Partition
//	POST /v1/retention       OldAsk       -> Old
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
// Keys K in queries are percent-encoded bytes; times T are RFC 3339 or Unix seconds. All parameters but bucket may be
// left out. The address itself answers GET, POST {"token":"…"} and DELETE of /v1/session: a browser signs in with the
// admin token and gets a cookie, which is valid for twelve hours.
//
// An error is answered by a Problem. If another process leads, requests for moves are answered with status 421 and the
// leader's address.
package adminapi

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Key is a key of an entry as it appears in JSON: a string, or an object like {"b64":"…"} if the key is not valid
// UTF-8.
type Key = keytext.Key

// Span is an interval of keys, from its start up to, but not including, its end. An empty end is plus infinity.
type Span = keytext.Span

// Map is the partition map of a bucket at one epoch (version): the list of its ranges with their partitions.
type Map struct {
	Bucket     string      `json:"bucket"`
	Epoch      uint64      `json:"epoch"`
	Partitions []Partition `json:"partitions"`
}

// Partition describes one range in the partition map of a bucket: the id of the partition that has its rows, and the
// state of its move.
type Partition struct {
	ID string `json:"id"`
	Span
	Phase string `json:"phase"`
	// To is the id of the partition to which the range moves. It is empty if the range does not move.
	To string `json:"to"`
	// SweepPending is true if deletion markers that the last move needed have not been removed yet.
	SweepPending bool `json:"sweep_pending,omitempty"`
	// PinnedUntil is the time until which the range must not be merged with the range before it. Absent if the range
	// may be merged.
	PinnedUntil time.Time `json:"pinned_until,omitzero"`
}

// History lists the versions (epochs) of a bucket's partition map that are still known, the newest first.
type History struct {
	Bucket string  `json:"bucket"`
	Epochs []Epoch `json:"epochs"`
}

// Epoch describes one version of a bucket's partition map: when it was written, how many ranges it has, and which
// groups of moves were under way.
type Epoch struct {
	Epoch   uint64    `json:"epoch"`
	Changed time.Time `json:"changed"`
	State   string    `json:"state"`
	Ranges  uint64    `json:"ranges"`
	Batches []Batch   `json:"batches"`
}

// Batch is a group of moves of a bucket that go through the phases of a move together. They share the changes of the
// bucket's partition map, and the waits after these changes.
type Batch struct {
	ID     uint64 `json:"id"`
	Phase  string `json:"phase"` // "settled": to be swept
	Ranges uint64 `json:"ranges"`
	// Copied, Verified and Mended are numbers of rows of a batch that has not ended. Verified rows were compared with
	// their copies. Mended rows were missing in the copy, and were copied again.
	Copied   int64 `json:"copied,omitempty"`
	Verified int64 `json:"verified,omitempty"`
	Mended   int64 `json:"mended,omitempty"`
	// Searched is the number of rows that were searched for deletion markers after the moves. Swept is the number of
	// markers that were found and removed.
	Searched int64 `json:"searched,omitempty"`
	Swept    int64 `json:"swept,omitempty"`
}

// Moves is a request to split, merge or refresh ranges of one bucket. The embedded Ask has the kind of the moves and
// the keys.
type Moves struct {
	Bucket string `json:"bucket"`
	scheduler.Ask
	// DryRun is true if the moves are only planned and reported, not made.
	DryRun bool `json:"dry_run,omitempty"`
}

// Apply is a request to make the moves of a plan that was computed before, e.g. by `rebalancer plan`.
type Apply struct {
	Bucket     string            `json:"bucket"`
	Partitions []rebalance.Range `json:"partitions"`
	Moves      []rebalance.Move  `json:"moves"`
	// DryRun is true if the moves are only checked and reported, not made.
	DryRun bool `json:"dry_run,omitempty"`
}

// Answer is the answer to a request for moves: the moves that were planned, and the job that makes them. After a dry
// run Job is nil.
type Answer struct {
	Bucket string `json:"bucket"`
	scheduler.Plan
	// Job is the job that makes the moves; nil after a dry run, in which no move is made.
	Job *scheduler.Job `json:"job,omitempty"`
}

// Status is the answer to GET /v1/status. It describes what the answering process does: its moves, its checks of sizes,
// and its deletion of old data. It also has the pauses and the leaders of the whole store.
type Status struct {
	// Leader leads shard 0, the first group of buckets. It is absent if only one process uses the store.
	Leader *engine.Holder `json:"leader,omitempty"`
	// Leading is true if this process moves ranges at present.
	Leading bool `json:"leading"`
	// Shards lists the processes that lead the moves of shards, which are groups of buckets. It is absent if only one
	// process uses the store.
	Shards []Share `json:"shards,omitempty"`
	// Pauses are the pauses of all moves and of the moves of single buckets, as kept in the store.
	Pauses []Paused `json:"pauses"`
	// PausesError is the reason why the pauses can't be read, or empty.
	PausesError string `json:"pauses_error,omitempty"`
	// Counting says how the processes of a shared store know the sizes of partitions. Unattended says which sizes no
	// process watches, and why; it is absent if all sizes are watched.
	Counting   string `json:"counting,omitempty"`
	Unattended string `json:"unattended,omitempty"`
	// OtherLimits is a warning that the processes of a shared store have different limits of partitions. It is absent
	// if their limits are the same.
	OtherLimits string `json:"other_limits,omitempty"`
	// Rate is the present limit of rows that are moved per second, and MostRate is the maximum of this limit; 0 means
	// no limit.
	Rate     int             `json:"rate"`
	MostRate int             `json:"max_rate"`
	Buckets  []Bucket        `json:"buckets"`
	Jobs     []scheduler.Job `json:"jobs"`
	Scan     scheduler.Scan  `json:"scan"`
	Round    Round           `json:"balance"`
	// Cleaning describes the deletion of old versions in buckets of objects. It is absent if this process never does
	// that.
	Cleaning *cleaning.Status `json:"cleaning,omitempty"`
	// CleaningShards lists the processes that clean the buckets of objects, each with its shards (groups of buckets).
	// It is absent if only one process uses the store.
	CleaningShards []Share `json:"cleaning_shards,omitempty"`
	// Retention describes the deletion of old entries by rules. It is absent if this process has no rules of retention.
	Retention *engine.RetentionStatus `json:"retention,omitempty"`
}

// Share lists the shards that one process leads, for moves or for cleaning. Shards are the 16 groups into which the
// buckets are divided: the shard of a bucket is the second hexadecimal digit of its id.
type Share struct {
	Name   string `json:"name"` // empty: no process leads these shards
	Admin  string `json:"admin,omitempty"`
	Here   bool   `json:"here"` // the process is the one that answers
	Shards []int  `json:"shards"`
}

// Bucket describes, in a Status, a bucket with moves that are wanted, running or have just failed.
type Bucket struct {
	// Name is the bucket's name; absent if the name is not known.
	Name    string  `json:"bucket,omitempty"`
	ID      string  `json:"id"`
	Epoch   uint64  `json:"epoch"`
	State   string  `json:"state"`
	Ranges  uint64  `json:"ranges"`
	Batches []Batch `json:"batches"`
	// Goals is the number of wanted moves that have not ended.
	Goals   int  `json:"goals"`
	Running bool `json:"running"`
	Paused  bool `json:"paused"`
	// Failures are the failed steps of moves that are tried again, the newest first.
	Failures []scheduler.Failure `json:"failures"`
}

// Round describes the last check of the sizes of all partitions. It also has totals of decisions and of exact counts
// since the process began.
type Round struct {
	Every string    `json:"every"` // pause between two checks; 0s: no checks
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Everything is true if all ranges were checked, not only those with writes since the check before.
	Everything bool `json:"everything"`
	Buckets    int  `json:"buckets"`
	Ranges     int  `json:"ranges"`
	// Waiting is the number of partitions that wait to be counted exactly. Counted is the number of exact counts that
	// were made, and Rows is the number of rows that they read.
	Waiting int   `json:"recounts_waiting"`
	Counted int64 `json:"recounts"`
	Rows    int64 `json:"counted_rows"`
	// Decided counts the rebalancer's decisions by kind and reason, like "split: rows". Moved counts the rows that
	// moves copied, by the kind of decision.
	Decided map[string]int64 `json:"decided"`
	Moved   map[string]int64 `json:"moved_rows"`
	// Late is how long the bucket that has waited longest has been overdue for a check. It is absent if no bucket
	// waits.
	Late string `json:"late,omitempty"`
	// CountersAwaySince is when the counters of rows stopped answering. It is absent while they answer.
	CountersAwaySince time.Time `json:"counters_away_since,omitzero"`
	// Why explains, for some ranges outside the limits of sizes, why nothing is done about them.
	Why   []Reason `json:"why"`
	Error string   `json:"error,omitempty"`
}

// Reason says, for one range that is outside the limits of sizes, why it is neither split nor merged now.
type Reason struct {
	Bucket string `json:"bucket,omitempty"`
	ID     string `json:"id"`
	Span
	Text string `json:"why"`
}

// Which selects the buckets of an admin request: one bucket by its name, or all buckets if the name is empty. Requests
// to pause, resume or abort moves, and to wait until nothing moves, use it.
type Which struct {
	Bucket string `json:"bucket,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// Done is the answer to a request to resume moves after a pause, or to abort requested moves.
type Done struct {
	// Dropped is the number of requested moves that were aborted before they began.
	Dropped int `json:"dropped"`
	// Lifted is true if a request to resume moves has ended a pause.
	Lifted bool `json:"lifted,omitempty"`
}

// PauseAsk is a request for a pause of the moves of one bucket, or of all buckets.
type PauseAsk struct {
	Which
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// ForS is the number of seconds after which the pause ends by itself; 0 means never.
	ForS float64 `json:"for_s,omitempty"`
}

// Paused describes a pause, during which no moves begin in a bucket or in all buckets.
type Paused struct {
	// Bucket is the name of the paused bucket, or its id if the name is not known. It is absent if all moves are
	// paused.
	Bucket string `json:"bucket,omitempty"`
	pause.Pause
	// Already is true if the moves were paused before the request.
	Already bool `json:"already,omitempty"`
}

// Quiet is the progress of a wait until no ranges move: how many buckets were checked, and in which of them ranges
// still move.
type Quiet struct {
	// Roots is the number of buckets that were checked. Scanned is true once all buckets were checked.
	Roots   int  `json:"roots"`
	Scanned bool `json:"scanned"`
	// Moving lists the buckets in which ranges still move, but at most the first thousand. MovingBuckets is the number
	// of all buckets in which ranges move.
	Moving        []QuietBucket `json:"moving"`
	MovingBuckets int           `json:"moving_buckets"`
}

// QuietBucket is a bucket in which ranges still move: it has batches (groups of moves) that have not ended.
type QuietBucket struct {
	Bucket string `json:"bucket"`
	// Phases are the phases of the batches, e.g. "copying".
	Phases []string `json:"phases"`
}

// Backup is a request to copy the store into a new directory. Dir is an absolute path on the server's machine.
type Backup struct {
	Dir string `json:"dir"`
}

// Problem is the JSON form of an error with which the server answers a request.
type Problem struct {
	Error string `json:"error"`
	// Kind is the name of the error's store.Kind, e.g. that of store.NotFound.
	Kind string `json:"kind"`
	// Leader is the process that can serve the request, if another process leads; else nil.
	Leader *engine.Holder `json:"leader,omitempty"`
}
