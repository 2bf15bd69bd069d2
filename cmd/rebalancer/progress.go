package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

// showJob shows the progress of a job, which is an accepted request for moves of ranges, until the caller calls end.
// kind is the value of --progress, and what names the job. Each row counts three times, since a move reads it three
// times: to copy, compare and sweep the row.
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

// passes is the number of times that a move of a range reads each row: to copy the row, to compare the copy, and to
// sweep the old partition.
const passes = 3

// done returns how many rows the job j of moves has copied, compared and swept, added up. Each of the three numbers is
// at most the number of rows counted at the start. Rows written later, or copied again, do not count.
func done(j *scheduler.Job) int64 {
	return min(j.Copied, j.Rows) + min(j.Verified, j.Rows) + min(j.Searched, j.Rows)
}

// withPhase returns the text `what`, the name of the job j of moves, followed by the job's current phase if j has one.
func withPhase(what string, j *scheduler.Job) string {
	if j.Phase == "" {
		return what
	}
	return what + ", " + j.Phase
}

// progressLine returns a line of text for progress: the rows that the job j of moves has done, the rate, and the time
// left. The parameter what names the job. The parameter took is the time since the start.
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
