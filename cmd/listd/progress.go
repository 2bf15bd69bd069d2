package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// showCount shows how many keys are loaded or deleted, as --progress says, of a total; 0: unknown.
func showCount(kind string, w io.Writer, what string, n *atomic.Int64, total int) (end func()) {
	p := daemon.Progress{
		Unit: "keys",
		Now:  func() (string, int64, int64) { return what, n.Load(), int64(total) },
		Line: func(took time.Duration) string { return progressLine(what, int(n.Load()), total, took) },
	}
	return p.Show(kind, w)
}

// progressLine shows the keys, the rate, and the time left.
func progressLine(what string, n, total int, took time.Duration) string {
	rate := float64(n) / max(took.Seconds(), 1e-3)
	if total <= 0 {
		return fmt.Sprintf("%s %d keys, %.0f keys/s", what, n, rate)
	}
	s := fmt.Sprintf("%s %d of %d keys (%d %%), %.0f keys/s", what, n, total, 100*n/total, rate)
	return s + daemon.Left(int64(n), int64(total), rate)
}
