package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// showLoaded shows how many keys are loaded, as --progress says, of a total; 0: unknown.
func showLoaded(kind string, w io.Writer, n *atomic.Int64, total int) (end func()) {
	p := daemon.Progress{
		Unit: "keys",
		Now:  func() (string, int64, int64) { return "loading", n.Load(), int64(total) },
		Line: func(took time.Duration) string { return progressLine(int(n.Load()), total, took) },
	}
	return p.Show(kind, w)
}

// progressLine shows the keys loaded, the rate, and the time left.
func progressLine(n, total int, took time.Duration) string {
	rate := float64(n) / max(took.Seconds(), 1e-3)
	if total <= 0 {
		return fmt.Sprintf("loaded %d keys, %.0f keys/s", n, rate)
	}
	s := fmt.Sprintf("loaded %d of %d keys (%d %%), %.0f keys/s", n, total, 100*n/total, rate)
	if n > 0 && n < total {
		left := time.Duration(float64(total-n) / rate * float64(time.Second))
		s += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return s
}
