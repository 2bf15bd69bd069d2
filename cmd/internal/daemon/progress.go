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

// Progress shows how far a command is.
type Progress struct {
	// Unit of the counts, like rows.
	Unit string
	// Now returns what is being done, how much is done, and the total (0: unknown). It is called
	// from another goroutine.
	Now func() (what string, done, total int64)
	// Line returns the same as a line; empty: none.
	Line func(took time.Duration) string
}

const (
	// LineEvery is the pause between two lines of progress.
	LineEvery = 5 * time.Second
	barEvery  = 100 * time.Millisecond
)

// Show shows the progress until end is called: as a bar, as plain lines, or with auto as a bar on
// a terminal and lines elsewhere. Other kinds show nothing.
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
		total = -1 // a spinner
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

// Left says how long the rest takes, behind the text of a line: "" where that is not known, or nothing is left.
func Left(done, total int64, rate float64) string {
	if done <= 0 || done >= total {
		return ""
	}
	left := time.Duration(float64(total-done) / rate * float64(time.Second))
	return fmt.Sprintf(", %v left", left.Round(time.Second))
}

// PrintEvery prints a line, unless it is empty, at an interval until stop.
func PrintEvery(d time.Duration, w io.Writer, line func() string) (stop func()) {
	return wait.Every(d, func() {
		if text := line(); text != "" {
			fmt.Fprintln(w, text)
		}
	})
}

// Terminal reports whether a file is a terminal.
func Terminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
