package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how many keys are loaded. add is safe for concurrent use.
type progress struct{ add, end func() }

// newProgress makes the progress of --progress, for so many keys; 0: unknown.
func newProgress(kind string, w io.Writer, total int) progress {
	if kind == "auto" {
		kind = "plain"
		if isTerminal(w) {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		most := total
		if most == 0 {
			most = -1 // a spinner
		}
		bar := progressbar.NewOptions(most,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("loading"),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("keys"), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(),
		)
		return progress{add: func() { _ = bar.Add(1) }, end: func() { _ = bar.Exit(); fmt.Fprintln(w) }}
	case "plain":
		var n atomic.Int64
		started := time.Now()
		return progress{add: func() { n.Add(1) }, end: printEvery(lineEvery, w, func() string {
			return progressLine(int(n.Load()), total, time.Since(started))
		})}
	}
	return progress{func() {}, func() {}}
}

// lineEvery is the pause between two lines of progress.
const lineEvery = 5 * time.Second

// printEvery prints a line, unless it is empty, at an interval until stop.
func printEvery(every time.Duration, w io.Writer, line func() string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if text := line(); text != "" {
					fmt.Fprintln(w, text)
				}
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
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
