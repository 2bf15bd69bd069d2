package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

// progress shows how far a job is. Each row is copied, then compared, and then looked
// at by the sweep, so it counts three times.
type progress interface {
	at(j *scheduler.Job)
	end()
}

func newProgress(kind string, w io.Writer, what string) progress {
	if kind == "auto" {
		kind = "plain"
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		return &barProgress{w: w, what: what, bar: progressbar.NewOptions64(-1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("rows"), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(),
		)}
	case "plain":
		return &lineProgress{w: w, what: what, began: time.Now()}
	}
	return noProgress{}
}

type noProgress struct{}

func (noProgress) at(*scheduler.Job) {}
func (noProgress) end()              {}

type barProgress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar
}

func (b *barProgress) at(j *scheduler.Job) {
	if j.Rows > 0 {
		b.bar.ChangeMax64(passes * j.Rows)
	}
	b.bar.Describe(withPhase(b.what, j))
	_ = b.bar.Set64(done(j))
}

func (b *barProgress) end() {
	_ = b.bar.Exit()
	fmt.Fprintln(b.w)
}

// passes is how often a move reads each row.
const passes = 3

// done are the rows copied, compared and swept over. What was written since the rows
// were counted, or has to be copied again, may come to more.
func done(j *scheduler.Job) int64 {
	return min(j.Copied, j.Rows) + min(j.Verified, j.Rows) + min(j.Searched, j.Rows)
}

// withPhase names a job and what it does at present.
func withPhase(what string, j *scheduler.Job) string {
	if j.Phase == "" {
		return what
	}
	return what + ", " + j.Phase
}

// lineEvery is the pause between two lines of a progress that goes to a file.
const lineEvery = 5 * time.Second

type lineProgress struct {
	w           io.Writer
	what        string
	began, last time.Time
}

func (p *lineProgress) at(j *scheduler.Job) {
	now := time.Now()
	if p.last.IsZero() {
		p.last = now
	}
	if now.Sub(p.last) < lineEvery {
		return
	}
	p.last = now
	fmt.Fprintln(p.w, progressLine(p.what, j, now.Sub(p.began)))
}

func (p *lineProgress) end() {}

// progressLine says how far a job is, how fast it goes, and how long it takes.
func progressLine(what string, j *scheduler.Job, took time.Duration) string {
	n := done(j)
	s := fmt.Sprintf("%s: of %s rows %s copied, %s compared, %s swept over", withPhase(what, j), commas(j.Rows),
		commas(min(j.Copied, j.Rows)), commas(min(j.Verified, j.Rows)), commas(min(j.Searched, j.Rows)))
	if n == 0 || j.Rows == 0 {
		return s
	}
	rate := float64(n) / took.Seconds()
	s += fmt.Sprintf(" (%d %%), %s rows/s", 100*n/(passes*j.Rows), commas(int64(rate)))
	if left := passes*j.Rows - n; left > 0 {
		s += fmt.Sprintf(", %v left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	}
	return s
}
