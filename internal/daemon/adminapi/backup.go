package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Backup asks for a backup into a new directory of the server's machine.
type Backup struct {
	Dir string `json:"dir"`
}

// BackupLine is one line of the answer: how much there is so far or, in the last one,
// how much there is in the end, or why there is nothing.
type BackupLine struct {
	Progress *store.Size `json:"progress,omitempty"`
	Done     *store.Size `json:"done,omitempty"`
	Problem  *Problem    `json:"problem,omitempty"`
}

// backup copies the store for as long as somebody reads the answer.
func (h *handler) backup(w http.ResponseWriter, r *http.Request) {
	var b Backup
	err := decode(r, &b)
	from, embedded := h.Rows.(store.Backupper)
	switch {
	case err != nil:
	case !embedded:
		err = store.Errorf(store.InvalidArgument,
			"this process has no data directory: Cassandra is backed up by nodetool snapshot, under rebalancer pause --wait")
	case !filepath.IsAbs(b.Dir):
		err = store.Errorf(store.InvalidArgument, "dir is an absolute path of this machine, not %q", b.Dir)
	}
	if err != nil {
		fail(w, err)
		return
	}
	line := lines[BackupLine](w)
	var mu sync.Mutex
	var now store.Size
	stop := every(progressEvery, func() {
		mu.Lock()
		size := now
		mu.Unlock()
		line(BackupLine{Progress: &size})
	})
	size, err := from.Backup(r.Context(), b.Dir, func(size store.Size) {
		mu.Lock()
		defer mu.Unlock()
		now = size
	})
	stop()
	if err != nil {
		line(BackupLine{Problem: &Problem{Error: err.Error(), Kind: store.KindOf(err).String()}})
		return
	}
	line(BackupLine{Done: &size})
}

// progressEvery is the pause between two lines about a progress.
const progressEvery = time.Second

// lines begins an answer that comes line by line, for as long as it takes, and returns
// what sends one.
func lines[Line any](w http.ResponseWriter) func(Line) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // what was to be read has been
	var mu sync.Mutex
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Encode(l) // the client has gone, and the request's context ends
		_ = c.Flush()
	}
}

// every calls f at an interval until it is stopped.
func every(d time.Duration, f func()) (stop func()) {
	quit := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); work.Wait() }
}

// Backup asks for a backup into a new directory of the server's machine, by its absolute
// path, and hands on how much there is so far. It ends when ctx does.
func (c *Client) Backup(ctx context.Context, dir string, progress func(store.Size)) (size store.Size, err error) {
	return size, eachLine(ctx, c, "/v1/backup", Backup{Dir: dir}, func(l *BackupLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, &remoteError{kindOf(l.Problem.Kind), l.Problem.Error}
		case l.Done != nil:
			size = *l.Done
			return true, nil
		case l.Progress != nil:
			progress(*l.Progress)
		}
		return false, nil
	})
}

// eachLine sends a request and hands on the lines of its answer until one is the last.
func eachLine[Line any](
	ctx context.Context, c *Client, path string, in any, f func(*Line) (last bool, err error),
) error {
	body, err := c.open(ctx, http.MethodPost, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var l Line
		if err := d.Decode(&l); err != nil {
			if ctx.Err() != nil {
				return store.Wrap("read the answer", context.Cause(ctx))
			}
			return store.Errorf(store.Unavailable, "the answer broke off: %w", err)
		}
		if last, err := f(&l); last || err != nil {
			return err
		}
	}
}
