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

// progress shows how far a load has come. total is 0 where it isn't known.
type progress interface {
	// add is safe for concurrent use.
	add(keys int)
	end()
}

// newProgress makes the progress that --progress asks for. "auto" is a bar on a
// terminal, else lines.
func newProgress(kind string, w io.Writer, total int) progress {
	if kind == "auto" {
		kind = "plain"
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		most := total
		if most == 0 {
			most = -1 // a spinner
		}
		return barProgress{progressbar.NewOptions(most,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("loading"),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("keys"), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(),
		), w}
	case "plain":
		p := &lineProgress{w: w, total: total, started: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
		go p.run(lineEvery)
		return p
	}
	return noProgress{}
}

type noProgress struct{}

func (noProgress) add(int) {}
func (noProgress) end()    {}

type barProgress struct {
	bar *progressbar.ProgressBar
	w   io.Writer
}

func (b barProgress) add(keys int) { _ = b.bar.Add(keys) }
func (b barProgress) end()         { _ = b.bar.Exit(); fmt.Fprintln(b.w) }

// lineEvery is the pause between two lines of a progress that goes to a file.
const lineEvery = 5 * time.Second

type lineProgress struct {
	w          io.Writer
	total      int
	n          atomic.Int64
	started    time.Time
	quit, done chan struct{}
}

func (p *lineProgress) add(keys int) { p.n.Add(int64(keys)) }

func (p *lineProgress) end() {
	close(p.quit)
	<-p.done
}

func (p *lineProgress) run(every time.Duration) {
	defer close(p.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintln(p.w, progressLine(int(p.n.Load()), p.total, time.Since(p.started)))
		case <-p.quit:
			return
		}
	}
}

// progressLine says how far one has come, how fast, and how much is left.
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
