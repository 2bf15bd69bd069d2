package s3api_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// faulty answers every call in the same way.
type faulty struct {
	err error
	// pages are what List answers, one after the other; then err.
	pages []listing.Page
	wait  <-chan struct{} // List waits for it, if it isn't nil
	began chan struct{}
}

func (f *faulty) CreateBucket(context.Context, string, ...[]byte) error { return f.err }
func (f *faulty) DeleteBucket(context.Context, string) error            { return f.err }
func (*faulty) Settings(context.Context) ([]byte, error)                { return nil, nil }

func (f *faulty) Bucket(string) s3api.Bucket                { return f }
func (f *faulty) Put(context.Context, []byte, []byte) error { return f.err }
func (f *faulty) Delete(context.Context, []byte) error      { return f.err }
func (f *faulty) DeleteRangeUntil(context.Context, []byte, []byte, time.Time) ([]byte, error) {
	return nil, f.err
}

func (f *faulty) Get(context.Context, []byte) (listing.Entry, error) { return listing.Entry{}, f.err }
func (f *faulty) SplitPoints(context.Context, listing.Query, int) ([][]byte, error) {
	return nil, f.err
}

func (f *faulty) Buckets(context.Context, string, string) iter.Seq2[listing.BucketInfo, error] {
	return func(yield func(listing.BucketInfo, error) bool) {
		for range 20_000 {
			if !yield(listing.BucketInfo{Name: "some-bucket", Created: time.Unix(1, 0)}, nil) {
				return
			}
		}
		yield(listing.BucketInfo{}, f.err)
	}
}

func (f *faulty) List(ctx context.Context, q listing.Query) (listing.Page, error) {
	if f.wait != nil {
		f.began <- struct{}{}
		select {
		case <-f.wait:
		case <-ctx.Done():
			return listing.Page{}, ctx.Err()
		}
	}
	if len(f.pages) == 0 {
		return listing.Page{}, f.err
	}
	p := f.pages[0]
	f.pages = f.pages[1:]
	return p, nil
}

func pageOf(keys ...string) (p listing.Page) {
	for _, k := range keys {
		p.Items = append(p.Items, listing.Item{Entry: listing.Entry{Key: []byte(k)}})
	}
	return p
}

func TestErrorsOfTheStore(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
		says   string // to whoever reads
		writer string // to whoever writes; empty: the same
	}{
		{store.Errorf(store.Unavailable, "away"), 503, "ServiceUnavailable", "1", "be reached in time",
			"It is unknown whether the write took effect"},
		{store.Errorf(store.Timeout, "late"), 503, "ServiceUnavailable", "1", "be reached in time",
			"It is unknown whether the write took effect"},
		{listing.ErrOutcomeUnknown, 503, "ServiceUnavailable", "1", "be reached in time", "It is unknown"},
		{store.Errorf(store.Unavailable, "%w: free at least a byte", store.ErrFull), 507, "InsufficientStorage", "",
			"disk is full", ""},
		{fmt.Errorf("%w: %w", listing.ErrOutcomeUnknown, store.ErrFull), 503, "ServiceUnavailable", "1",
			"be reached in time", "It is unknown"},
		{store.Errorf(store.Unavailable, "%w: the log is broken", store.ErrUnwritable), 503, "ServiceUnavailable", "1",
			"was refused", ""},
		{&listing.Error{Op: "put", Bucket: "abc", Err: listing.ErrOutcomeUnknown}, 503, "ServiceUnavailable", "1",
			"be reached in time", "It is unknown"},
		{listing.ErrBucketClosing, 503, "ServiceUnavailable", "1", "be reached in time", "It is unknown"},
		{store.Errorf(store.Unavailable, "%w: by an hour", listing.ErrTimeUnknown), 503, "ServiceUnavailable", "1",
			"does not know the time of its store", ""},
		{store.Errorf(store.TooMuchDeadData, "dead"), 503, "SlowDown", "60", "Too much deleted data", ""},
		{store.Errorf(store.Corrupt, "root of x"), 500, "InternalError", "", "is damaged: ", ""},
		{errors.New("secret"), 500, "InternalError", "", "the server&apos;s log has it", ""},
		{store.Errorf(store.Conflict, "meanwhile"), 409, "OperationAborted", "", "A conflicting operation", ""},
		{listing.ErrBucketExists, 409, "BucketAlreadyOwnedByYou", "", "exists already", ""},
		{listing.ErrNotEmpty, 409, "BucketNotEmpty", "", "is not empty", ""},
		{listing.ErrNoSuchBucket, 404, "NoSuchBucket", "", "&quot;abc&quot; does not exist", ""},
		{listing.ErrNotFound, 404, "NoSuchKey", "", "key does not exist", ""},
		{listing.ErrBadToken, 400, "InvalidArgument", "", "token provided is incorrect", ""},
		{store.Errorf(store.InvalidArgument, "the value is long"), 400, "InvalidArgument", "", "the value is long", ""},
	} {
		s := serve(t, &faulty{err: c.err}, s3api.Options{Region: "mars"})
		for _, call := range []string{"PUT /abc/k", "GET /abc/k", "HEAD /abc/k", "DELETE /abc/k",
			"GET /abc?list-type=2",
			"PUT /abc", "DELETE /abc", "HEAD /abc", "GET /abc?location", "GET /abc?evenkeel-splits=2",
			"POST /abc?evenkeel-delete-range"} {
			method, uri, _ := strings.Cut(call, " ")
			a := s.want(c.status, c.code, method, uri, "")
			require.Equal(t, c.retry, a.header.Get("Retry-After"), "%v: %s", c.err, call)
			require.NotContains(t, a.body, "secret")
			says := c.says
			if method != "GET" && method != "HEAD" {
				says = cmp.Or(c.writer, says)
			}
			if method != "HEAD" {
				require.Contains(t, a.body, says, call)
			}
		}
	}
}

// An answer that breaks off must not look whole.
func TestBucketsThatBreakOff(t *testing.T) {
	s := serve(t, &faulty{err: store.Errorf(store.Unavailable, "away")}, s3api.Options{})
	raw := s.raw("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	require.Contains(t, raw, "200 OK")
	require.NotContains(t, raw, "</ListAllMyBucketsResult>")
	require.False(t, strings.HasSuffix(raw, "0\r\n\r\n"), "the body must not end properly")
}

// Pages that listing ends early are joined; tokens without items are not shown
// as an end.
func TestShortPagesAreFilled(t *testing.T) {
	item := func(k string) listing.Item { return listing.Item{Entry: listing.Entry{Key: []byte(k)}} }
	f := &faulty{err: errors.New("no more pages"), pages: []listing.Page{
		{Next: "t1"}, {Items: []listing.Item{item("a")}, Next: "t2"}, {Next: "t3"},
		{Items: []listing.Item{item("b")}, Next: "t4"},
	}}
	s := serve(t, f, s3api.Options{})
	body := s.want(200, "", "GET", "/abc?list-type=2&max-keys=2", "").body
	require.Contains(t, body, "<NextContinuationToken>t4</NextContinuationToken><KeyCount>2</KeyCount>")
}

func TestTooManyRequests(t *testing.T) {
	wait := make(chan struct{})
	f := &faulty{wait: wait, began: make(chan struct{}), pages: make([]listing.Page, 1)}
	s := serve(t, f, s3api.Options{MaxRequests: 1})
	done := make(chan answer)
	go func() { done <- s.do("GET", "/abc?list-type=2", "") }()
	<-f.began
	a := s.want(503, "SlowDown", "GET", "/abc?list-type=2", "")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	close(wait)
	require.Equal(t, http.StatusOK, (<-done).status)
}

// A client that ends its sending side still waits for the answer. (With the bug
// that this is about, the request ends while List lingers.)
func TestHalfClosedClientsAreAnswered(t *testing.T) {
	linger := make(chan struct{})
	f := &faulty{wait: linger, began: make(chan struct{}, 1), pages: make([]listing.Page, 1)}
	time.AfterFunc(200*time.Millisecond, func() { close(linger) })
	s := serve(t, f, s3api.Options{})
	require.Contains(t, s.raw("GET /abc?list-type=2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), "200 OK")
}

func TestRequestTimeout(t *testing.T) {
	f := &faulty{wait: make(chan struct{}), began: make(chan struct{}, 1)}
	s := serve(t, f, s3api.Options{RequestTimeout: 10 * time.Millisecond})
	s.want(503, "ServiceUnavailable", "GET", "/abc?list-type=2", "")
}

func TestLogAndMetrics(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	s := serve(t, &faulty{err: errors.New("disk on fire")},
		s3api.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Metrics: registry})
	a := s.want(500, "InternalError", "GET", "/abc/k?X-Amz-Signature=0123456", "")
	s.want(501, "NotImplemented", "GET", "/abc?policy", "")
	s.stop() // a request is logged after its answer
	require.Contains(t, log.String(), a.header.Get("x-amz-request-id"))
	require.Contains(t, log.String(), `"level":"ERROR"`)
	require.Contains(t, log.String(), "disk on fire")
	require.NotContains(t, log.String(), "0123456", "a presigned URL in the log could be used")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP evenkeel_s3_errors_total Requests refused or failed on the S3 address, by operation and S3 error code.
# TYPE evenkeel_s3_errors_total counter
evenkeel_s3_errors_total{code="InternalError",operation="GetObject"} 1
evenkeel_s3_errors_total{code="NotImplemented",operation="other"} 1
`), "evenkeel_s3_errors_total"))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "evenkeel_s3_request_seconds" {
			buckets := f.GetMetric()[0].GetHistogram().GetBucket()
			require.Len(t, buckets, 13)
			require.Equal(t, 0.0001, buckets[0].GetUpperBound())
			require.InDelta(t, 5.96, buckets[12].GetUpperBound(), 0.01)
		}
	}
	_, err = s3api.New(&faulty{}, s3api.Options{Metrics: registry})
	require.Error(t, err, "the same metrics twice")
}

// TestSpans: a span has the operation's name, the bucket, and how it ended, and no key.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("")
	var log bytes.Buffer
	o := s3api.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), LogEvery: true}
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "abc"))
	fine, wrong := serve(t, s3api.Over(c), o), serve(t, &panicking{}, o)
	for _, c := range []struct {
		s          *server
		call       string
		name, code string
		http       int64
		status     codes.Code
	}{
		{fine, "PUT /abc/secret", "PutObject", "", 200, codes.Unset},
		{fine, "GET /abc/secrets", "GetObject", "NoSuchKey", 404, codes.Unset},
		{fine, "PUT /abc?policy", "other", "NotImplemented", 501, codes.Error},
		{wrong, "GET /abc/secret", "GetObject", "InternalError", 500, codes.Error},
	} {
		ctx, span := tracer.Start(t.Context(), "before")
		w := wanted{call: c.call}
		log.Reset()
		_, _ = w.send(ctx, c.s.handler)
		span.End()
		ended := recorder.Ended()
		got := ended[len(ended)-1]
		require.Equal(t, c.name, got.Name(), c.call)
		require.Contains(t, log.String(), `"trace":"`+got.SpanContext().TraceID().String()+`"`)
		has := map[string]any{}
		for _, a := range got.Attributes() {
			has[string(a.Key)] = a.Value.AsInterface()
		}
		require.Regexp(t, "^[0-9A-F]{16}$", has["aws.request_id"])
		delete(has, "aws.request_id")
		want := map[string]any{"http.response.status_code": c.http, "aws.s3.bucket": "abc"}
		description := ""
		if c.code != "" {
			want["error.type"] = c.code
		}
		if c.status == codes.Error {
			description = c.code
		}
		require.Equal(t, want, has, c.call)
		require.Equal(t, sdk.Status{Code: c.status, Description: description}, got.Status(), c.call)
	}
}
