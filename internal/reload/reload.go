// Package reload reads files again that change while a server runs, such as certificates, so that the server needs no
// restart.
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
	// lookEvery is the pause between two reads of the files. Each read compares contents, as a comparison of dates and
	// sizes would miss changes.
	lookEvery = time.Second
	// maxWatchedBytes is the largest size of one file, in bytes. A larger file counts as invalid.
	maxWatchedBytes = 16 << 20
)

// Files is a set of files, e.g. a certificate and its key, that a running server reads again when the files change. If
// the new contents are invalid, the contents that were read before stay in force.
type Files struct {
	What  string // names the files in the log
	Names []string
	// Take puts the new contents of the files, in the order of Names, into force. An error says why the contents are
	// invalid.
	Take func(contents [][]byte) error
	// Tell logs the contents that are in force. Tell may be nil.
	Tell func(*slog.Logger)

	seen     [sha256.Size]byte
	complain string // the last error, so that each error is logged once
}

// Load reads the files for the first time. Load returns an error if a file cannot be read, or if the contents are
// invalid.
func (w *Files) Load() error {
	_, err := w.look()
	return err
}

// look reads the files, and calls Take if their contents have changed. The result changed is true if Take has accepted
// new contents.
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

// Run reads the files every second until ctx ends, and puts changed contents into force. Run logs each change, and each
// error once.
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
