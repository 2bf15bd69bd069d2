package s3api_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// cut is a connection that breaks after so many bytes of answers' bodies.
type cut struct {
	http.ResponseWriter
	left     int
	failures int
	deadline error
}

var errCut = errors.New("the connection is gone")

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		c.failures++
		return 0, errCut
	}
	return len(b), nil
}

func (c *cut) SetWriteDeadline(time.Time) error { return c.deadline }

// TestClientsThatAreGone: an answer that can't be sent ends there, as one that failed.
func TestClientsThatAreGone(t *testing.T) {
	var log bytes.Buffer
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	logged := slog.New(slog.NewJSONHandler(&log, nil))
	h, err := s3api.New(s3api.Over(c), s3api.Options{Logger: logged})
	require.NoError(t, err)
	send := func(h http.Handler, method, target string, w *cut) (ended any) {
		log.Reset()
		w.ResponseWriter = httptest.NewRecorder()
		body := strings.NewReader(map[string]string{"PUT": "body"}[method])
		r := httptest.NewRequest(method, target, body)
		if target == "/abc" {
			r.Body, r.ContentLength = http.NoBody, 0
		}
		defer func() { ended = recover() }()
		h.ServeHTTP(w, r)
		return nil
	}
	require.Nil(t, send(h, "PUT", "/abc", &cut{left: 1000}))
	require.Nil(t, send(h, "PUT", "/abc/k", &cut{left: 1000}))
	many, err := s3api.New(&crowded{n: 9000}, s3api.Options{Logger: logged})
	require.NoError(t, err)
	for target, h := range map[string]http.Handler{"/abc/k": h, "/abc?list-type=2": h, "/abc?location": h, "/": many} {
		w := &cut{}
		require.Equal(t, http.ErrAbortHandler, send(h, "GET", target, w), target)
		require.Equal(t, 1, w.failures, "%s: nothing more is sent", target)
		require.Contains(t, log.String(), `"code":"ClientGone"`, target)
		require.Contains(t, log.String(), errCut.Error(), target)
		require.Nil(t, send(h, "GET", target, &cut{left: 10 << 20}), target)
		require.Empty(t, log.String(), target)
	}
	// Where the time of a part can't be limited nothing is sent, unless no server can do it.
	w := &cut{left: 10 << 20, deadline: errCut}
	require.Equal(t, http.ErrAbortHandler, send(many, "GET", "/", w))
	require.Equal(t, 10<<20, w.left)
	require.Nil(t, send(many, "GET", "/", &cut{left: 10 << 20, deadline: http.ErrNotSupported}))
	// An error document that can't be sent is no other failure.
	require.Nil(t, send(h, "GET", "/abc/none", &cut{}))
	require.Contains(t, log.String(), `"code":"NoSuchKey"`)
}

// panicking is a set of buckets with a mistake.
type panicking struct{ faulty }

func (panicking) Bucket(string) s3api.Bucket { panic("a mistake") }

// TestPanics are answered and logged, and the server goes on.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	logged := slog.New(slog.NewJSONHandler(&log, nil))
	s := serve(t, &panicking{}, s3api.Options{MaxRequests: 1, Logger: logged})
	for range 3 {
		a := s.want(500, "InternalError", "GET", "/abc/k", "")
		require.NotContains(t, a.body, "mistake")
	}
	s.stop()
	require.Contains(t, log.String(), "panic: a mistake")
	require.Contains(t, log.String(), "lost_test.go", "where it was")
}

// TestRefusalsOfParts: what is wrong with one part of a request is not passed over for
// the rest of it.
func TestRefusalsOfParts(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "v")
	long := strings.Repeat("x", 2048)
	s.want(400, "EntityTooLarge", "PUT", "/abc?acl", strings.Repeat("x", 1<<20))
	s.want(412, "PreconditionFailed", "PUT", "/abc/k", "", "x-amz-copy-source", "/abc/k", "x-amz-metadata-directive",
		"REPLACE", "If-None-Match", s.do("GET", "/abc/k", "").header.Get("ETag"))
	s.want(400, "MetadataTooLarge", "PUT", "/abc/new", "",
		"x-amz-copy-source", "/abc/k", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-a", long)
	s.want(501, "NotImplemented", "DELETE", "/abc/k", "", "If-None-Match", `"e"`)
	s.want(404, "NoSuchKey", "GET", "/abc/new", "")
	s.want(200, "", "GET", "/abc/k", "")
	require.Contains(t, s.want(501, "NotImplemented", "PATCH", "/abc", "").body, "PATCH on a bucket")

	page := pageOf("a", "\xff/")
	page.Items[1].CommonPrefix, page.Next = true, "t"
	f := serve(t, &faulty{err: errCut, pages: []listing.Page{page}}, s3api.Options{})
	a := f.want(400, "InvalidArgument", "GET", "/abc?delimiter=/&max-keys=2", "")
	require.Contains(t, a.body, "The Prefix ")
}
