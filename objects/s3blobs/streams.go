package s3blobs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// lastByteLate is a reader of a body that holds the last byte back until the body has ended without an error. So a
// server that was told the length of the body never gets a complete body if the body fails.
type lastByteLate struct {
	r *bufio.Reader
	// failed is the error with which the body has ended, or nil.
	failed error
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 32<<10) }

func (l *lastByteLate) Read(p []byte) (int, error) {
	if l.failed != nil {
		return 0, l.failed
	}
	ahead, err := l.r.Peek(2)
	switch {
	case err == nil:
		return l.r.Read(p[:min(len(p), l.r.Buffered()-1)])
	case !errors.Is(err, io.EOF):
		l.failed = err
		return 0, err
	case len(ahead) == 0 || len(p) == 0:
		return 0, err
	}
	return l.r.Read(p[:1])
}

// patient is an http.RoundTripper that ends a request if the server makes no progress for some time. Progress means
// that the server accepts bytes of a body, answers, or sends bytes. Time in which there is nothing to send, or in which
// the caller does not read, does not count.
type patient struct {
	next  http.RoundTripper
	stall time.Duration
}

func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stalled := store.Errorf(store.Unavailable, "the store of bodies made no progress for %v", p.stall)
	w := &watch{
		stall: p.stall, cancel: cancel, timer: time.AfterFunc(p.stall, func() { cancel(stalled) }),
		of: func(err error) error {
			if err != nil && err != io.EOF && context.Cause(ctx) == stalled { //nolint:errorlint // as it was made
				return stalled
			}
			return err
		},
	}
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &sending{req.Body, w, req.ContentLength}
	}
	resp, err := p.next.RoundTrip(req)
	w.timer.Stop()
	if err != nil {
		cancel(nil)
		return nil, w.of(err)
	}
	resp.Body = &receiving{resp.Body, w}
	return resp, nil
}

// watch ends a request by a timer, which runs out if the server makes no progress.
type watch struct {
	stall  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	// of returns the given error of a request or, if the watch has ended the request, the reason why the watch ended
	// it.
	of func(error) error
}

// sending is a reader of the body of a request. It runs a timer while the client waits for the server, which is between
// two reads of the body, and after the last read.
type sending struct {
	io.ReadCloser
	w    *watch
	left int64
}

func (s *sending) Read(p []byte) (int, error) {
	s.w.timer.Stop()
	n, err := s.ReadCloser.Read(p)
	s.left -= int64(n)
	if s.left > 0 && err == nil {
		s.w.timer.Reset(s.w.stall)
	} else {
		s.w.timer.Reset(answerTime)
	}
	return n, err
}

// receiving is a reader of the body of an answer. It runs a timer while the client waits for the server, which is only
// during a read of the body.
type receiving struct {
	io.ReadCloser
	w *watch
}

func (r *receiving) Read(p []byte) (int, error) {
	r.w.timer.Reset(r.w.stall)
	n, err := r.ReadCloser.Read(p)
	r.w.timer.Stop()
	return n, r.w.of(err)
}

func (r *receiving) Close() error {
	r.w.timer.Stop()
	err := r.ReadCloser.Close()
	r.w.cancel(nil)
	return err
}
