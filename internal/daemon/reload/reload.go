// Package reload keeps what files say in force while the files change: certificates, and
// whatever else a server reads at its start and need not be started anew for.
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
	// lookEvery is the pause between two looks at files that may change. They are
	// read each time: a date or a size would miss changes.
	lookEvery = time.Second
	// maxWatchedBytes bounds a file that is watched.
	maxWatchedBytes = 16 << 20
)

// Files are files that are read again when they change. What they said is
// kept for as long as they say nothing that can be used.
type Files struct {
	What  string // for the log
	Names []string
	// Take uses the files' new content, or says why it can't.
	Take func(contents [][]byte) error
	// Tell logs what is in force now; nil: there is no more to say.
	Tell func(*slog.Logger)

	seen     [sha256.Size]byte
	complain string // the last complaint, so that it is logged once
}

// Load reads the files for the first time.
func (w *Files) Load() error {
	_, err := w.look()
	return err
}

// look reads the files and takes them if they are others than before.
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

// Run looks at the files until ctx ends.
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
			log.Error(w.What+" can't be used: what was read before stays in force", "files", w.Names, "error", err)
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
