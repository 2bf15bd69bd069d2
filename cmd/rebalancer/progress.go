package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

// showJob shows how far a job is, as --progress says. Each row is copied, compared and swept, so
// it counts three times.
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

// passes is how often a move reads each row.
const passes = 3

// done returns the rows copied, compared and swept. Rows written since they were counted, or
// copied again, do not count.
func done(j *scheduler.Job) int64 {
	return min(j.Copied, j.Rows) + min(j.Verified, j.Rows) + min(j.Searched, j.Rows)
}

// withPhase adds the present phase of a job to its name.
func withPhase(what string, j *scheduler.Job) string {
	if j.Phase == "" {
		return what
	}
	return what + ", " + j.Phase
}

// progressLine shows the rows done, the rate, and the time left.
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
