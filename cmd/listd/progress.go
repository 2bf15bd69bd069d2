package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// showCount shows how many keys are loaded or deleted, until the caller calls end. kind is the value of --progress, and
// what is a verb such as "loaded". n is the current number of keys. The parameter total is the number of keys at the
// end, or 0 if unknown.
func showCount(kind string, w io.Writer, what string, n *atomic.Int64, total int) (end func()) {
	p := daemon.Progress{
		Unit: "keys",
		Now:  func() (string, int64, int64) { return what, n.Load(), int64(total) },
		Line: func(took time.Duration) string { return progressLine(what, int(n.Load()), total, took) },
	}
	return p.Show(kind, w)
}

// progressLine returns a line of text for progress, with the number of keys done, the rate, and the time left. The
// parameter what is a verb such as "loaded". The parameter total is the number of keys at the end, or 0 if unknown. The
// parameter took is the time since the start.
func progressLine(what string, n, total int, took time.Duration) string {
	rate := float64(n) / max(took.Seconds(), 1e-3)
	if total <= 0 {
		return fmt.Sprintf("%s %d keys, %.0f keys/s", what, n, rate)
	}
	s := fmt.Sprintf("%s %d of %d keys (%d %%), %.0f keys/s", what, n, total, 100*n/total, rate)
	return s + daemon.Left(int64(n), int64(total), rate)
}
