// Package reload rereads files that change while a server runs, such as certificates.
package reload

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const (
	// lookEvery is the pause between two reads of the files, which compare contents:
	// comparing dates and sizes would miss changes.
	lookEvery = time.Second
	// maxWatchedBytes bounds a file.
	maxWatchedBytes = 16 << 20
)

// Files are reread when they change. While they are invalid, the contents before stay in force.
type Files struct {
	What  string // for the log
	Names []string
	// Take uses the new contents, or returns why they are invalid.
	Take func(contents [][]byte) error
	// Tell logs the contents in force; may be nil.
	Tell func(*slog.Logger)

	seen     [sha256.Size]byte
	complain string // the last error, which is logged once
}

// Load reads the files for the first time.
func (w *Files) Load() error {
	_, err := w.look()
	return err
}

// look reads the files and takes them if they have changed.
func (w *Files) look() (changed bool, err error) {
	contents := make([][]byte, len(w.Names))
	sum := sha256.New()
	for i, name := range w.Names {
		if contents[i], err = readBounded(name); err != nil {
			return false, err
		}
		fmt.Fprintf(sum, "%d ", len(contents[i]))
		sum.Write(contents[i])
	}
	now := [sha256.Size]byte(sum.Sum(nil))
	if now == w.seen {
		return false, nil
	}
	if err := w.Take(contents); err != nil {
		return false, err
	}
	w.seen = now
	return true, nil
}

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxWatchedBytes+1))
	if err == nil && len(data) > maxWatchedBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxWatchedBytes)
	}
	return data, err
}

// Run reads the files every second until ctx ends.
func (w *Files) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.tell(log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := w.look()
		switch {
		case err != nil && err.Error() != w.complain:
			w.complain = err.Error()
			log.Error(w.What+" can't be used: those read before stay in force", "files", w.Names, "error", err)
		case err == nil && (changed || w.complain != ""):
			w.complain = ""
			log.Info(w.What+" were read again", "files", w.Names)
			w.tell(log)
		}
	}
}

func (w *Files) tell(log *slog.Logger) {
	if w.Tell != nil {
		w.Tell(log)
	}
}
