package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Progress is one line of the answer to a request that takes long, such as a backup. Most lines have only the progress
// so far. The last line has either the result (Done) or an error (Problem).
type Progress[T any] struct {
	Progress *T       `json:"progress,omitempty"`
	Done     *T       `json:"done,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}

// progressEvery is the pause between two lines that tell a client the progress of a long request.
const progressEvery = time.Second

// lines begins an answer that consists of lines, each a JSON value. It returns a function that sends one line. The
// request has no time limit any more, so that the answer may take any time.
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

// follow answers a request that takes long. It calls the function work in the meantime, and sends a line with the
// progress each second. The last line has the final value, or the error of work. The functions are:
//   - work carries out the request, and calls report when it has made progress
//   - show converts a reported value into the form for the client
//
// If the client disconnects, the context of the request ends, and work should return.
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

// backup answers a request to copy the store into a new directory on this machine. Meanwhile it sends lines about the
// progress to the client. Only an embedded store can be copied.
func (h *handler) backup(w http.ResponseWriter, r *http.Request) {
	var b Backup
	err := decode(r, &b)
	from, embedded := h.o.Store.(store.OnDisk)
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

// Backup lets the server copy its store into a new directory on the server's machine. The argument dir is the absolute
// path of the directory. Backup calls progress about once a second. If ctx ends, the server stops. The result is the
// size of the copy.
func (c *Client) Backup(ctx context.Context, dir string, progress func(store.Size)) (store.Size, error) {
	return followed(ctx, c, "/v1/backup", Backup{Dir: dir}, progress)
}

// followed sends a request that takes long, and calls progress with each progress that the server sends. `in` is the
// content of the request. The result last is the final result, or the last progress after an error.
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

// eachLine sends a request whose answer consists of lines, each a JSON value, and calls f with each line. It stops when
// f returns an error, or true, which means that the line was the last one.
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
