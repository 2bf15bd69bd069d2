package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// showCount shows how many keys are loaded or deleted, until end is called. kind is the value of --progress, and what a
// verb such as "loaded". total is the number of keys at the end, 0 if it is unknown.
func showCount(kind string, w io.Writer, what string, n *atomic.Int64, total int) (end func()) {
	p := daemon.Progress{
		Unit: "keys",
		Now:  func() (string, int64, int64) { return what, n.Load(), int64(total) },
		Line: func(took time.Duration) string { return progressLine(what, int(n.Load()), total, took) },
	}
	return p.Show(kind, w)
}

// progressLine returns a line of text with the number of keys done, the rate, and the time left. total is 0 if it is
// unknown.
func progressLine(what string, n, total int, took time.Duration) string {
	rate := float64(n) / max(took.Seconds(), 1e-3)
	if total <= 0 {
		return fmt.Sprintf("%s %d keys, %.0f keys/s", what, n, rate)
	}
	s := fmt.Sprintf("%s %d of %d keys (%d %%), %.0f keys/s", what, n, total, 100*n/total, rate)
	return s + daemon.Left(int64(n), int64(total), rate)
}
