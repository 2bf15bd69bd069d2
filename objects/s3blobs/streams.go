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

// lastByteLate is a reader that returns the last byte of a body once the body has ended without an error.
// So whoever has been told the length of the body never gets all of it, unless it is good.
type lastByteLate struct {
	r *bufio.Reader
	// failed is how the body has failed.
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

// patient ends requests whose server makes no progress: it takes no more of a body, does not answer, or
// sends nothing. The time that passes until there is more to send, or until somebody reads on, does not count.
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

// watch ends a request once its timer has run out.
type watch struct {
	stall  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	// of names the cause where the watch has ended the request.
	of func(error) error
}

// sending is the body of a request: the server is waited for between two reads, and behind the last one.
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

// receiving is the body of an answer: the server is waited for while it is read.
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
