package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

// showJob shows the progress of a job, which is a request for moves, until end is called. kind is the value of
// --progress. A move reads each row three times, to copy, compare and sweep it, so each row counts three times.
func showJob(kind string, w io.Writer, what string, job *atomic.Pointer[scheduler.Job]) (end func()) {
	p := daemon.Progress{
		Unit: "rows",
		Now: func() (string, int64, int64) {
			j := job.Load()
			return withPhase(what, j), done(j), passes * j.Rows
		},
		Line: func(took time.Duration) string { return progressLine(what, job.Load(), took) },
	}
	return p.Show(kind, w)
}

// passes is the number of times that a move reads each row: to copy it, to compare it, and to sweep the old partition.
const passes = 3

// done returns how many rows a job of moves has copied, compared and swept, added up. Each of the three is at most the
// number of rows counted at the start: rows written later, or copied again, do not count.
func done(j *scheduler.Job) int64 {
	return min(j.Copied, j.Rows) + min(j.Verified, j.Rows) + min(j.Searched, j.Rows)
}

// withPhase returns the text `what`, the name of a job of moves, followed by the job's present phase if it has one.
func withPhase(what string, j *scheduler.Job) string {
	if j.Phase == "" {
		return what
	}
	return what + ", " + j.Phase
}

// progressLine returns a line of text with the rows that a job of moves has done, the rate, and the time left. took is
// the time since the start.
func progressLine(what string, j *scheduler.Job, took time.Duration) string {
	n := done(j)
	s := fmt.Sprintf("%s: of %s rows %s copied, %s compared, %s swept over", withPhase(what, j), commas(j.Rows),
		commas(min(j.Copied, j.Rows)), commas(min(j.Verified, j.Rows)), commas(min(j.Searched, j.Rows)))
	if n == 0 || j.Rows == 0 {
		return s
	}
	rate := float64(n) / took.Seconds()
	s += fmt.Sprintf(" (%d %%), %s rows/s", 100*n/(passes*j.Rows), commas(int64(rate)))
	return s + daemon.Left(n, passes*j.Rows, rate)
}
