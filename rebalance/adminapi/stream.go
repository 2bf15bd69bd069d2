package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Progress is one line of an answer that takes its time: how far it is, or in the last line
// the result or a problem.
type Progress[T any] struct {
	Progress *T       `json:"progress,omitempty"`
	Done     *T       `json:"done,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}

// progressEvery is the pause between two lines with a progress.
const progressEvery = time.Second

// lines begins an answer of lines, for as long as it takes, and returns what sends one.
func lines[Line any](w http.ResponseWriter) func(Line) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // the request has been read
	var mu sync.Mutex
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(l Line) error {
		mu.Lock()
		defer mu.Unlock()
		if err := e.Encode(l); err != nil {
			return store.Errorf(store.Other, "nobody reads the answer any more: %w", err)
		}
		_ = c.Flush()
		return nil
	}
}

// follow answers lines about work, which reports how far it is. A client that goes ends the
// request's context.
func follow[P, T any](w http.ResponseWriter, show func(P) T, work func(report func(P)) error) {
	line := lines[Progress[T]](w)
	var last atomic.Pointer[P]
	last.Store(new(P))
	now := func() *T { return new(show(*last.Load())) }
	stop := wait.Every(progressEvery, func() { _ = line(Progress[T]{Progress: now()}) })
	err := work(func(p P) { last.Store(&p) })
	stop()
	if err != nil {
		_ = line(Progress[T]{Problem: problemOf(err)})
		return
	}
	_ = line(Progress[T]{Done: now()})
}

// backup copies the store while the client reads the answer.
func (h *handler) backup(w http.ResponseWriter, r *http.Request) {
	var b Backup
	err := decode(r, &b)
	from, embedded := h.o.Store.(store.Backupper)
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
	follow(w, func(s store.Size) store.Size { return s }, func(report func(store.Size)) error {
		size, err := from.Backup(r.Context(), b.Dir, report)
		report(size)
		return err
	})
}

// Backup makes a backup in a new directory of the server's machine, by its absolute path,
// and calls progress now and then. It ends when ctx does.
func (c *Client) Backup(ctx context.Context, dir string, progress func(store.Size)) (store.Size, error) {
	return followed(ctx, c, "/v1/backup", Backup{Dir: dir}, progress)
}

// followed reads the lines of follow.
func followed[T any](ctx context.Context, c *Client, path string, in any, progress func(T)) (last T, err error) {
	return last, eachLine(ctx, c, path, in, func(l *Progress[T]) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem.err()
		case l.Done != nil:
			last = *l.Done
			return true, nil
		case l.Progress != nil:
			last = *l.Progress
			progress(last)
		}
		return false, nil
	})
}

// eachLine sends a request and calls f with each line of the answer until f returns that it
// was the last one.
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
