package daemon

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far a command is, as a bar on a terminal or as lines of text.
type Progress struct {
	// Unit is the noun for the counts, such as rows.
	Unit string
	// Now returns a description of the present work, the count of work done, and the total count (0: unknown). It is
	// called from another goroutine.
	Now func() (what string, done, total int64)
	// Line returns the progress as a line of text, given the time since the start. An empty line is not printed.
	Line func(took time.Duration) string
}

const (
	// LineEvery is the pause between two lines of progress.
	LineEvery = 5 * time.Second
	barEvery  = 100 * time.Millisecond
)

// Show shows the progress until end is called. kind is "bar", "plain" for lines of text, or "auto" for a bar on a
// terminal and lines elsewhere. With any other kind, nothing is shown.
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

// Left returns the time that is left for the work, as a text like ", 5s left" for the end of a line. rate is the work
// done per second. The text is empty if nothing is done yet, or nothing is left.
func Left(done, total int64, rate float64) string {
	if done <= 0 || done >= total {
		return ""
	}
	left := time.Duration(float64(total-done) / rate * float64(time.Second))
	return fmt.Sprintf(", %v left", left.Round(time.Second))
}

// PrintEvery calls line at intervals of d, and prints the text that it returns, until stop is called. An empty text is
// not printed.
func PrintEvery(d time.Duration, w io.Writer, line func() string) (stop func()) {
	return wait.Every(d, func() {
		if text := line(); text != "" {
			fmt.Fprintln(w, text)
		}
	})
}

// Terminal reports whether file is an *os.File that is a terminal. For any other type it returns false.
func Terminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
