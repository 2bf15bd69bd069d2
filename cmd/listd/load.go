package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
)

type loadCmd struct {
	serverFlags `group:"Server:"`
	TSV         bool   `name:"tsv" help:"Lines are key TAB value."`
	Null        bool   `short:"0" help:"Lines end with NUL instead of a line feed."`
	Create      bool   `help:"Create the bucket if it does not exist."`
	CutsFile    string `placeholder:"FILE" help:"${load_cuts_file=}"`
	Concurrency int    `default:"128" help:"Concurrent requests. The server syncs writes in groups, so more is faster."`
	Progress    string `default:"auto" enum:"auto,bar,plain,none" help:"${load_progress=}"`
	Bucket      string `arg:"" help:"Name of the bucket."`
	File        string `arg:"" optional:"" default:"-" help:"File to read, default stdin (-)."`
}

func (*loadCmd) Help() string {
	return `Puts keys into a bucket, one per line. The whole line is the key, byte for byte, without
escapes. A file can be loaded again; of several lines with one key any may be the last. Bad
lines (an empty key, or one of more than 1024 bytes) and refused ones are reported with their
number; all others are loaded, and the exit code is 4.

Examples:

  find /usr | listd load files --create
  find /usr -print0 | listd load files -0
  listd load files keys.txt --create --cuts-file cuts.txt
  printf 'k1\tv1\n' | listd load files --tsv

Exit codes: 0 every line is loaded; 1 failed; 2 bad flags; 4 some lines were not
loaded, all others were.`
}

// maxComplaints is the largest number of bad lines that the command load reports one by one. Further bad lines are only
// counted.
const maxComplaints = 100

func (l *loadCmd) Run(ctx context.Context, std stdio) error {
	if l.Concurrency < 1 || l.Concurrency > 4096 {
		return daemon.UsageError("--concurrency is 1 to 4096, not %d", l.Concurrency)
	}
	if l.CutsFile != "" && !l.Create {
		return daemon.UsageError("--cuts-file goes with --create")
	}
	cuts, err := readCuts(l.CutsFile)
	if err != nil {
		return err
	}
	in, total, err := l.open(std)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := l.connect(l.Concurrency)
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, r, cuts, std.err); err != nil {
		return err
	}
	t := &tally{w: std.err}
	end := showCount(l.Progress, std.err, "loaded", &t.done, total)
	started := time.Now()
	err = l.load(ctx, r, newRecords(in, l.Null, l.TSV), t)
	end()
	took := time.Since(started)
	fmt.Fprintf(std.out, "loaded %d keys in %v (%.0f keys/s)", t.good, took.Round(time.Millisecond),
		float64(t.good)/max(took.Seconds(), 1e-3))
	if t.bad > 0 {
		fmt.Fprintf(std.out, ", %d lines not loaded", t.bad)
	}
	fmt.Fprintln(std.out)
	if err != nil {
		return err
	}
	if t.bad > 0 {
		return daemon.Exit(daemon.ExitRefused, fmt.Errorf("%d lines were not loaded", t.bad))
	}
	return nil
}

// open opens the input of the command load, and returns the input and its number of lines, for the progress. The number
// is 0 for an input that is not a regular file.
func (l *loadCmd) open(std stdio) (io.ReadCloser, int, error) {
	if l.File == "-" {
		return io.NopCloser(std.in), 0, nil
	}
	f, err := os.Open(l.File)
	if err != nil {
		return nil, 0, daemon.Exit(daemon.ExitUsage, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", l.File)
	}
	total := 0
	if err == nil && info.Mode().IsRegular() {
		if total, err = countRecords(f, l.Null); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, daemon.Exit(daemon.ExitUsage, err)
	}
	return f, total, nil
}

// prepare makes sure that the bucket exists, before load reads any line. If --create is given, it creates the bucket.
// The parameter cuts is the content of a file with the keys at which the ranges of a new bucket begin. A bucket that
// exists already keeps its own cuts, and prepare writes a message about that to w.
func (l *loadCmd) prepare(ctx context.Context, r *remote, cuts []byte, w io.Writer) error {
	if l.Create {
		err := r.createBucket(ctx, l.Bucket, true, cuts)
		if code(err) == "BucketAlreadyOwnedByYou" {
			if cuts != nil {
				fmt.Fprintf(w, "listd: the bucket %s exists: its cuts stay as they are\n", l.Bucket)
			}
			return nil
		}
		return err
	}
	_, err := r.do(ctx, &call{method: http.MethodHead, bucket: l.Bucket})
	if e, ok := errors.AsType[*serverError](err); ok && e.status == http.StatusNotFound {
		return fmt.Errorf("there is no bucket %s: --create makes it", l.Bucket)
	}
	return err
}

// load puts all records that rs reads into the bucket, and counts them in t. A record whose key is refused is only
// counted. load stops with an error if
//   - the input cannot be read,
//   - the server stays unavailable, or
//   - the server refuses the whole bucket.
func (l *loadCmd) load(ctx context.Context, r *remote, rs *records, t *tally) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan record, 2*l.Concurrency)
	g.Go(func() error {
		defer close(queue)
		for {
			rec, err := rs.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read line %d: %w", rs.line+1, err)
			}
			select {
			case queue <- rec:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range l.Concurrency {
		g.Go(func() error {
			for rec := range queue {
				err := rec.bad
				if err == nil {
					err = l.put(ctx, r, rec)
				}
				if err != nil && rec.bad == nil && !refusedOne(err) {
					return fmt.Errorf("line %d: %w", rec.line, err)
				}
				t.count(rec, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// anyKeyBytes is the header of a request by which the server accepts keys that are not UTF-8.
var anyKeyBytes = http.Header{"X-Evenkeel-Key-Bytes": {"any"}}

func (l *loadCmd) put(ctx context.Context, r *remote, rec record) error {
	_, err := r.do(ctx, &call{method: http.MethodPut, bucket: l.Bucket, key: rec.key, body: rec.value,
		header: anyKeyBytes})
	return err
}

// refusedOne reports whether the server has refused only the key of one request, e.g. as too long. The parameter err is
// the error of the request. The result is false for errors that concern other keys, too: the bucket is missing, access
// is denied, or the server has failed.
func refusedOne(err error) bool {
	var e *serverError
	return errors.As(err, &e) && e.status >= 400 && e.status < 500 &&
		e.status != http.StatusNotFound && e.status != http.StatusForbidden && e.status != http.StatusUnauthorized
}

// tally counts the lines of the input that were put into the bucket, and the bad lines. A tally reports the first 100
// bad lines to w.
type tally struct {
	w    io.Writer
	done atomic.Int64

	mu        sync.Mutex
	good, bad int
}

func (t *tally) count(rec record, err error) {
	t.done.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.good++
		return
	}
	switch t.bad++; {
	case t.bad <= maxComplaints:
		key := keytext.Format(rec.key[:min(len(rec.key), 64)])
		fmt.Fprintf(t.w, "line %d (%s): %v\n", rec.line, key, err)
	case t.bad == maxComplaints+1:
		fmt.Fprintln(t.w, "more lines are bad: they are counted only")
	}
}
