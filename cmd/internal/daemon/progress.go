package daemon

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress describes how to show, while a command runs, how far the command is: as a bar on a terminal or as lines of
// text.
type Progress struct {
	// Unit is the noun for what the command counts, in the plural, e.g. rows.
	Unit string
	// Now returns a description of the current work, the count of work done, and the total count (0: unknown), for the
	// bar. Another goroutine than the command's calls Now.
	Now func() (what string, done, total int64)
	// Line returns the progress as a line of text. took is the time since the start. An empty line is not printed.
	Line func(took time.Duration) string
}

const (
	// LineEvery is the pause between two lines of progress.
	LineEvery = 5 * time.Second
	barEvery  = 100 * time.Millisecond
)

// Show shows the progress on w until the caller calls end. kind is "bar", "plain" for lines of text, or "auto" for a
// bar on a terminal and lines elsewhere. With any other kind Show shows nothing.
func (p *Progress) Show(kind string, w io.Writer) (end func()) {
	if kind == "auto" {
		kind = "plain"
		if Terminal(w) {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		return p.bar(w)
	case "plain":
		began := time.Now()
		return PrintEvery(LineEvery, w, func() string { return p.Line(time.Since(began)) })
	}
	return func() {}
}

func (p *Progress) bar(w io.Writer) (end func()) {
	what, _, total := p.Now()
	if total == 0 {
		total = -1 // shown as a spinner
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(p.Unit), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(barEvery), progressbar.OptionFullWidth(),
	)
	draw := func() {
		what, done, total := p.Now()
		if total > 0 {
			bar.ChangeMax64(total)
		}
		bar.Describe(what)
		_ = bar.Set64(done)
	}
	stop := wait.Every(barEvery, draw)
	return func() {
		stop()
		draw()
		_ = bar.Exit()
		fmt.Fprintln(w)
	}
}

// Left returns the remaining time of some work as a text like ", 5s left", for the end of a line. done and total count
// the work, and rate is the work done per second. The text is empty if nothing is done yet, or nothing is left.
func Left(done, total int64, rate float64) string {
	if done <= 0 || done >= total {
		return ""
	}
	left := time.Duration(float64(total-done) / rate * float64(time.Second))
	return fmt.Sprintf(", %v left", left.Round(time.Second))
}

// PrintEvery calls line at intervals of d, and prints the text that line returns to w, until the caller calls stop. An
// empty text is not printed.
func PrintEvery(d time.Duration, w io.Writer, line func() string) (stop func()) {
	return wait.Every(d, func() {
		if text := line(); text != "" {
			fmt.Fprintln(w, text)
		}
	})
}

// Terminal reports whether file is an *os.File that is a terminal. For a file of any other type the result is false.
func Terminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
