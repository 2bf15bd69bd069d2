// Package adminapi is how operators reach a process that moves ranges: an HTTP
// handler for its admin address, and a client of it. Both speak JSON.
//
//	GET  /v1/status                          Status
//	GET  /v1/map?bucket=B[&epoch=N]          Map
//	GET  /v1/history?bucket=B[&limit=N]      History
//	POST /v1/moves           Moves        -> Answer
//	POST /v1/apply           Apply        -> Answer
//	GET  /v1/jobs/{id}                       Job
//	POST /v1/pause           PauseAsk     -> Paused
//	POST /v1/quiet           Which        -> a QuietLine each, as they come
//	POST /v1/resume, abort   Which        -> Done
//	POST /v1/verify          Verify       -> a VerifyLine each, as they come
//	POST /v1/backup          Backup       -> a BackupLine each, as they come
//	GET  /v1/sizes?bucket=B               -> a Line each, with a Size
//	POST /v1/recount         Recount      -> a Line each, with a Recounted
//	GET  /v1/layout?bucket=B[&exact=1]    -> a Line each, with a LayoutPartition
//
// What fails is answered by a Problem. A process that does not lead answers what
// asks for moves with 421 and the leader's address.
package adminapi

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/base/keytext"
)

// Key is a key in JSON: a string, or {"b64":"…"} where it is not UTF-8.
type Key = keytext.Key

// Map is the map of a bucket at one epoch.
type Map struct {
	Bucket     string      `json:"bucket"`
	Epoch      uint64      `json:"epoch"`
	Partitions []Partition `json:"partitions"`
}

// Partition is a range with the partition that holds it.
type Partition struct {
	ID    string `json:"id"`
	Start Key    `json:"start"`
	// End is empty for plus infinity.
	End   Key    `json:"end"`
	Phase string `json:"phase"`
	// To is the destination while it moves, else empty.
	To string `json:"to"`
	// SweepPending: its last move is not swept yet.
	SweepPending bool `json:"sweep_pending,omitempty"`
	// PinnedUntil is how long its start stays a cut.
	PinnedUntil *time.Time `json:"pinned_until,omitempty"`
}

// History is the epochs of a bucket that are still known, the newest first.
type History struct {
	Bucket string  `json:"bucket"`
	Epochs []Epoch `json:"epochs"`
}

// Epoch is one of them.
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
	// Searched are the rows in which the sweep has looked for markers, Swept those
	// that were some.
	Searched int64 `json:"searched,omitempty"`
	Swept    int64 `json:"swept,omitempty"`
}

// Span is an interval of keys; an empty end is plus infinity.
type Span struct {
	Start Key `json:"start"`
	End   Key `json:"end"`
}

// Moves asks for moves of one bucket.
type Moves struct {
	Bucket string `json:"bucket"`
	// Kind is split, merge, refresh or presplit.
	Kind     string     `json:"kind"`
	Keys     []Key      `json:"keys,omitempty"`
	Spans    []Span     `json:"ranges,omitempty"`
	PinUntil *time.Time `json:"pin_until,omitempty"`
	// Append has a presplit find the cuts, instead of Keys.
	Append *Append `json:"append,omitempty"`
	Force  bool    `json:"force,omitempty"`
	// DryRun: say what would be done, and do nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Append is a load by appends that is to come.
type Append struct {
	RowsPerSecond float64 `json:"rows_per_second"`
	// ForS is for how many seconds.
	ForS float64 `json:"for_s"`
	// MaxRows of a partition; 0: as the server has it.
	MaxRows int64 `json:"max_rows,omitempty"`
	// Like are keys like those to come, which these lie above; none: the bucket's own.
	Like []Key `json:"like,omitempty"`
}

// Learned is how the keys of a bucket grow.
type Learned struct {
	// Method is number, clock or calendar.
	Method string `json:"method"`
	How    string `json:"how"`
	// Sure is from 0 to 1.
	Sure float64 `json:"sure"`
	// FromKeys is how many it was learned from.
	FromKeys int `json:"from_keys"`
	// RowsEach is how many rows partitions are cut for, LateRows how many the first cut
	// comes too late.
	RowsEach int64 `json:"rows_each"`
	LateRows int64 `json:"late_rows,omitempty"`
}

// Answer is what an ask for moves comes to.
type Answer struct {
	Bucket string `json:"bucket"`
	Epoch  uint64 `json:"epoch"`
	Moves  []Move `json:"moves"`
	// Notes say what needs no move, and why.
	Notes []string `json:"notes"`
	// Learned is how keys grow, after an Append.
	Learned *Learned `json:"learned,omitempty"`
	// Job is absent after a dry run.
	Job *Job `json:"job,omitempty"`
}

// Move is one move of a plan.
type Move struct {
	Start Key   `json:"start"`
	End   Key   `json:"end"`
	Cuts  []Key `json:"cuts"`
	// Rows within, Copies those that change partition; as counted.
	Rows   int64 `json:"rows"`
	Copies int64 `json:"rows_copied"`
}

// Job is what was asked for together.
type Job struct {
	ID     string `json:"id"`
	Bucket string `json:"bucket"`
	What   string `json:"what"`
	// State is waiting, running, done or failed.
	State string     `json:"state"`
	Asked time.Time  `json:"asked"`
	Ended *time.Time `json:"ended,omitempty"`
	// Phase is marking, copying, verifying, draining or sweeping while it moves: that
	// of what has come the least far.
	Phase string `json:"phase,omitempty"`
	// Rows that it copies, as counted when it was asked for; Copied, Verified and
	// Searched (by the sweep) are how far it is.
	Rows     int64  `json:"rows"`
	Copied   int64  `json:"copied"`
	Verified int64  `json:"verified"`
	Searched int64  `json:"searched"`
	Goals    []Goal `json:"goals"`
	Error    string `json:"error,omitempty"`
}

// Goal is one move of a job.
type Goal struct {
	Move
	// Stage is waiting, begun, met, refused or dropped.
	Stage string `json:"stage"`
	Batch uint64 `json:"batch,omitempty"`
	Error string `json:"error,omitempty"`
}

// Leader is who moves ranges.
type Leader struct {
	ID    string    `json:"id"`
	Name  string    `json:"name,omitempty"`
	Admin string    `json:"admin,omitempty"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Status is what goes on.
type Status struct {
	// Leader is absent in the embedded form, where the one process leads.
	Leader *Leader `json:"leader,omitempty"`
	// Leading: this process moves ranges.
	Leading bool `json:"leading"`
	// Pauses are kept in the store: of all moves, and of single buckets.
	Pauses []Paused `json:"pauses"`
	// PausesError is why they are not known: the store can't be read.
	PausesError string `json:"pauses_error,omitempty"`
	// Rate is rows per second at present, MostRate the most; 0: any.
	Rate     int      `json:"rate"`
	MostRate int      `json:"max_rate"`
	Buckets  []Bucket `json:"buckets"`
	Jobs     []Job    `json:"jobs"`
	Scan     Scan     `json:"scan"`
	Round    Round    `json:"balance"`
}

// Bucket is one with something to do.
type Bucket struct {
	// Name is absent where it is not known.
	Name    string  `json:"bucket,omitempty"`
	ID      string  `json:"id"`
	Epoch   uint64  `json:"epoch"`
	State   string  `json:"state"`
	Ranges  uint64  `json:"ranges"`
	Batches []Batch `json:"batches"`
	// Goals whose end has not come.
	Goals   int  `json:"goals"`
	Running bool `json:"running"`
	Paused  bool `json:"paused"`
	// Failures of what is tried again, the newest first.
	Failures []Failure `json:"failures"`
}

// Failure is an error and when it was met.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Scan is the search for what was left unfinished.
type Scan struct {
	Roots int        `json:"roots"`
	Found int        `json:"found"`
	Began *time.Time `json:"began,omitempty"`
	Ended *time.Time `json:"ended,omitempty"`
	Error string     `json:"error,omitempty"`
}

// Round is the last look at the sizes of partitions, and what came of all so far.
type Round struct {
	Every string     `json:"every"` // 0s: none are made
	Began *time.Time `json:"began,omitempty"`
	Ended *time.Time `json:"ended,omitempty"`
	// Everything was looked at, not only what was written to since the one before.
	Everything bool `json:"everything"`
	Buckets    int  `json:"buckets"`
	Ranges     int  `json:"ranges"`
	// Waiting recounts; Counted and Rows are those made, and what they read, since the
	// process began.
	Waiting int   `json:"recounts_waiting"`
	Counted int64 `json:"recounts"`
	Rows    int64 `json:"counted_rows"`
	// Decided is what was decided how often, like "split: rows"; Moved the rows that
	// moves copied, by what for. Since the process began.
	Decided map[string]int64 `json:"decided"`
	Moved   map[string]int64 `json:"moved_rows"`
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
	// Lifted: there was a pause, and a resumption ended it.
	Lifted bool `json:"lifted,omitempty"`
}

// Problem says what failed.
type Problem struct {
	Error string `json:"error"`
	// Kind is the store.Kind.
	Kind string `json:"kind"`
	// Leader is where to ask instead.
	Leader *Leader `json:"leader,omitempty"`
}
