package s3blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/blobtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestConformance runs over evenkeel's own S3. With EVENKEEL_S3_STORE=http://HOST:PORT and AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY it runs over another server.
func TestConformance(t *testing.T) {
	endpoint, n := os.Getenv("EVENKEEL_S3_STORE"), 0
	if endpoint == "" {
		endpoint = serve(t, nil).URL
	}
	blobtest.Run(t, func(t *testing.T) objects.Blobs {
		n++
		return bucket(t, endpoint, fmt.Sprintf("bodies-%d-%d", time.Now().UnixNano(), n), stall)
	})
}

// serve serves S3 with objects in a directory. before, if it isn't nil, answers a request if it returns true.
func serve(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) *httptest.Server {
	t.Helper()
	st := memstore.New()
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), s3api.Options{SoleWriter: true, Objects: o})
	require.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, blobs.Close())
		require.NoError(t, st.Close())
	})
	return s
}

// bucket opens a new bucket.
func bucket(t *testing.T, endpoint, name string, stall time.Duration) *remote {
	t.Helper()
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" {
		t.Setenv("AWS_ACCESS_KEY_ID", "any")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	}
	p, err := Parse("s3://" + name + "?region=us-east-1&endpoint=" + url.QueryEscape(endpoint))
	require.NoError(t, err)
	s, err := open(p, stall)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.ErrorIs(t, s.Check(t.Context()), store.InvalidArgument)
	require.NoError(t, s.c.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}))
	require.NoError(t, s.Check(t.Context()))
	return s
}

// No upload in parts is left behind by a body that fails.
func TestNoUploadIsLeft(t *testing.T) {
	s := bucket(t, serve(t, nil).URL, "bodies", stall)
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", partBytes+1)), iotest.ErrReader(io.ErrNoProgress))
	require.ErrorIs(t, s.Create(t.Context(), "b/x", body, -1), io.ErrNoProgress)
	ctx, hangUp := context.WithCancel(t.Context())
	n := 0
	require.Error(t, s.Create(ctx, "b/x", readerFunc(func(p []byte) (int, error) {
		if n += len(p); n > 2*partBytes {
			hangUp()
		}
		return len(p), nil
	}), -1))
	left, err := s.c.ListMultipartUploads(t.Context(), "bodies", "", "", "", "", 10)
	require.NoError(t, err)
	require.Empty(t, left.Uploads)
}

// A bucket that is gone is no blob that is lost.
func TestABucketThatIsGone(t *testing.T) {
	ctx := t.Context()
	s := bucket(t, serve(t, nil).URL, "bodies", stall)
	require.NoError(t, s.c.RemoveBucket(ctx, "bodies"))
	for n := range int64(2) {
		_, _, err := s.Open(ctx, "b/x", 0, n)
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, "bodies")
	}
	require.ErrorIs(t, s.List(ctx, "", "", nil), store.Unavailable)
	require.ErrorIs(t, s.Create(ctx, "b/x", strings.NewReader("x"), 1), store.Unavailable)
	require.ErrorIs(t, s.Check(ctx), store.InvalidArgument)
}

// Answers of a store that does not do what is asked are no success, and no blob that is lost.
func TestAnswersThatAreNone(t *testing.T) {
	answer := atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]{}
	s := bucket(t, serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		f := answer.Load()
		return f != nil && (*f)(w, r)
	}).URL, "bodies", stall)
	ctx := t.Context()
	require.NoError(t, s.Create(ctx, "b/x", strings.NewReader("hello"), 5))
	refused := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>m</Message></Error>", code)
			return true
		}
	}
	all := func() []error {
		_, _, read := s.Open(ctx, "b/x", 0, 5)
		_, _, size := s.Open(ctx, "b/x", 0, 0)
		return []error{
			read, size, s.Create(ctx, "b/y", strings.NewReader("hello"), 5), s.Delete(ctx, "b/x"),
			s.List(ctx, "", "", func(string, int64) error { return nil }),
		}
	}
	for _, a := range []struct {
		status int
		code   string
	}{{403, "AccessDenied"}, {404, "NoSuchBucket"}, {503, "SlowDown"}, {500, "InternalError"}} {
		f := refused(a.status, a.code)
		answer.Store(&f)
		for i, err := range all() {
			require.ErrorIs(t, err, store.Unavailable, "%s %d", a.code, i)
			require.NotErrorIs(t, err, store.ErrFull)
		}
	}
	f := refused(507, "InsufficientStorage")
	answer.Store(&f)
	err := s.Create(ctx, "b/y", strings.NewReader("hello"), 5)
	require.ErrorIs(t, err, store.ErrFull)
	require.ErrorIs(t, err, store.Unavailable)

	f = func(w http.ResponseWriter, r *http.Request) bool { // knows no ranges
		r.Header.Del("Range")
		return false
	}
	answer.Store(&f)
	_, _, err = s.Open(ctx, "b/x", 1, 3)
	require.ErrorIs(t, err, store.Unavailable)

	f = func(w http.ResponseWriter, r *http.Request) bool { // lists in another order
		_, _ = io.WriteString(w, "<ListBucketResult>"+
			"<Contents><Key>b/y</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"+
			"<Contents><Key>b/x</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>")
		return true
	}
	answer.Store(&f)
	err = s.List(ctx, "", "", func(string, int64) error { return nil })
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "order")
}

// A server that stops is given up, wherever it stops; time that the body takes does not count.
func TestAServerThatStops(t *testing.T) {
	const patience = 200 * time.Millisecond
	var stop atomic.Value // of string: where
	stop.Store("")
	release := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch stop.Load() {
		case "before":
		case "within":
			w.Header().Set("Content-Range", "bytes 0-9/10")
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
		default:
			return false
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	})
	defer close(release)
	s := bucket(t, server.URL, "bodies", patience)
	ctx := t.Context()
	given := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, "no progress")
	}

	slow := iotest.OneByteReader(strings.NewReader("hello"))
	require.NoError(t, s.Create(ctx, "b/x", readerFunc(func(p []byte) (int, error) {
		time.Sleep(patience)
		return slow.Read(p)
	}), 5))

	stop.Store("before")
	_, _, err := s.Open(ctx, "b/x", 0, 5)
	given(err)
	given(s.Create(ctx, "b/y", io.LimitReader(zeros{}, 64<<20), 64<<20))
	given(s.Delete(ctx, "b/x"))
	given(s.List(ctx, "", "", nil))
	given(s.Check(ctx))

	stop.Store("within")
	body, _, err := s.Open(ctx, "b/x", 0, 10)
	require.NoError(t, err)
	time.Sleep(2 * patience) // who reads it may be slow
	got := make([]byte, 5)
	_, err = io.ReadFull(body, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	_, err = body.Read(got)
	given(err)
	require.NoError(t, body.Close())

	// Whoever gives up himself is told so.
	stop.Store("before")
	ended, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	_, _, err = s.Open(ended, "b/x", 0, 5)
	require.Equal(t, store.Timeout, store.KindOf(err))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A server that is away, or ends within an answer, is unavailable.
func TestAServerThatEnds(t *testing.T) {
	server := serve(t, nil)
	s := bucket(t, server.URL, "bodies", stall)
	ctx := t.Context()
	const size = 32 << 20
	require.NoError(t, s.Create(ctx, "b/x", io.LimitReader(zeros{}, size), size))
	body, _, err := s.Open(ctx, "b/x", 0, size)
	require.NoError(t, err)
	server.CloseClientConnections()
	_, err = io.Copy(io.Discard, body)
	require.ErrorIs(t, err, store.Unavailable)
	require.NoError(t, body.Close())
	server.Listener.Close()
	server.CloseClientConnections()
	_, _, err = s.Open(ctx, "b/x", 0, 1)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorIs(t, s.Create(ctx, "b/x", strings.NewReader("x"), 1), store.Unavailable)
	require.ErrorIs(t, s.Check(ctx), store.Unavailable)
}

// Of bodies of unknown length only so many take memory at once; others do not wait for them for ever.
func TestBodiesOfUnknownLength(t *testing.T) {
	const patience = 100 * time.Millisecond
	s := bucket(t, serve(t, nil).URL, "bodies", patience)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, unsizedAtOnce)
	read := make(chan struct{}, unsizedAtOnce)
	for i := range unsizedAtOnce {
		go func() {
			ended <- s.Create(ctx, fmt.Sprintf("b/%d", i), readerFunc(func([]byte) (int, error) {
				read <- struct{}{}
				<-ctx.Done()
				return 0, ctx.Err()
			}), -1)
		}()
	}
	for range unsizedAtOnce {
		<-read
	}
	err := s.Create(ctx, "b/x", strings.NewReader("x"), -1)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "length")
	require.NoError(t, s.Create(ctx, "b/x", strings.NewReader("x"), 1))
	cancel()
	for range unsizedAtOnce {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	require.NoError(t, s.Create(t.Context(), "b/y", strings.NewReader("y"), -1))
}

// A body of known length takes little memory, however long it is.
func TestMemoryOfAStream(t *testing.T) {
	s := bucket(t, serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/bodies/b/x" {
			_, _ = io.Copy(io.Discard, r.Body)
			return true
		}
		return false
	}).URL, "bodies", stall)
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, during := held(), int64(0)
	const size = 64 << 20
	require.NoError(t, s.Create(t.Context(), "b/x", io.MultiReader(
		io.LimitReader(zeros{}, size/2), readerFunc(func([]byte) (int, error) { during = held(); return 0, io.EOF }),
		io.LimitReader(zeros{}, size/2)), size))
	t.Logf("%d bytes are held", during-before)
	require.Less(t, during-before, int64(1<<20))
}

func TestPlaces(t *testing.T) {
	p, err := Parse("s3://bodies?endpoint=http://10.0.0.1:9000&region=eu-1")
	require.NoError(t, err)
	require.Equal(t, Place{"bodies", "http://10.0.0.1:9000", "eu-1"}, p)
	_, err = Parse("s3://bodies")
	require.NoError(t, err)
	const secret = "hunter2hunter2"
	for _, bad := range []string{
		"", "bodies", "http://bodies", "s3://", "s3:///x", "s3://bodies/prefix", "s3://bodies#x",
		"s3://bodies?prefix=x", "s3://bodies?region=a&region=b", "s3://bodies?endpoint=10.0.0.1",
		"s3://bodies?endpoint=ftp://x", "s3://bodies?endpoint=http://x/y", "s3://bodies?endpoint=%zz", "s3://\x00",
		"s3://key:" + secret + "@bodies", "s3://bodies?endpoint=http://key:" + secret + "@host",
		"s3://key:" + secret + "@%zz",
		"s3://bodies?secret=" + secret,
	} {
		_, err := Parse(bad)
		require.ErrorIs(t, err, store.InvalidArgument, "%q", bad)
		require.NotContains(t, err.Error(), secret)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	_, err = Open(p)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "AWS_ACCESS_KEY_ID")
	file := t.TempDir() + "/credentials"
	require.NoError(t, os.WriteFile(file, []byte("[default]\naws_access_key_id = a\naws_secret_access_key = b\n"), 0o600))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	s, err := Open(p)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestLastByteLate: whatever the reads, the last byte comes only behind a good end.
func TestLastByteLate(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "x", "xy", strings.Repeat("abc", 20_000)} {
		for name, reads := range map[string]func(io.Reader) io.Reader{
			"plain": func(r io.Reader) io.Reader { return r }, "one byte": iotest.OneByteReader,
			"halves": iotest.HalfReader, "data with the end": iotest.DataErrReader,
		} {
			got, err := io.ReadAll(iotest.OneByteReader(&lastByteLate{r: newReader(reads(strings.NewReader(text)))}))
			require.NoError(t, err, name)
			require.Equal(t, text, string(got), name)
			bad := io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))
			l := &lastByteLate{r: newReader(reads(bad))}
			got, err = io.ReadAll(l)
			require.ErrorIs(t, err, broken)
			require.Less(t, len(got), max(len(text), 1))
			require.ErrorIs(t, l.failed, broken)
		}
	}
}
