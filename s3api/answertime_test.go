package s3api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const (
	// shortTime is the WriteTimeout of servers, longer what a request takes that ends after it.
	shortTime = time.Second
	longer    = shortTime * 3 / 2
)

// slowBlobs are bodies in memory, each of which takes its time to be stored.
type slowBlobs struct {
	*brokenBlobs
	mu    sync.Mutex
	delay time.Duration
}

func (b *slowBlobs) Create(ctx context.Context, name string, body io.Reader, n int64) error {
	all, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	time.Sleep(b.delay)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.brokenBlobs.Create(ctx, name, bytes.NewReader(all), n)
}

func (b *slowBlobs) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, size, err := b.brokenBlobs.Open(ctx, name, offset, n)
	if err == nil {
		body = io.NopCloser(body)
	}
	return body, size, err
}

func (b *slowBlobs) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
	sizes := map[string]int64{}
	b.mu.Lock()
	err := b.brokenBlobs.List(ctx, prefix, after, func(name string, size int64) error {
		sizes[name] = size
		return nil
	})
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if err == nil {
			err = each(name, sizes[name])
		}
	}
	return err
}

func (b *slowBlobs) Delete(ctx context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.brokenBlobs.Delete(ctx, name)
}

// impatient is a handler over buckets of both kinds, what stands for ids in requests, and a function that serves a
// handler with a WriteTimeout of shortTime.
func impatient(t *testing.T, o s3api.Options) (
	h http.Handler, b *slowBlobs, ids *strings.Replacer, start func(http.Handler, bool) *httptest.Server,
) {
	s := memstore.New()
	stock(t, s)
	b = &slowBlobs{brokenBlobs: &brokenBlobs{m: map[string][]byte{}}}
	ids = stockObjects(t, s, b)
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	o.Objects, err = objects.New(c, b, objects.Options{InlineBytes: -1})
	require.NoError(t, err)
	o.SoleWriter = true
	h, err = s3api.New(s3api.Over(c), o)
	require.NoError(t, err)
	return h, b, ids, func(h http.Handler, http2 bool) *httptest.Server {
		server := httptest.NewUnstartedServer(h)
		server.Config.WriteTimeout = shortTime
		if server.EnableHTTP2 = http2; http2 {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		return server
	}
}

// answerOf sends a request and returns the status and body of its answer, which must come whole.
func answerOf(t *testing.T, server *httptest.Server, call string, body io.Reader, headers ...string) (int, string, error) {
	method, target, _ := strings.Cut(call, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+target, body)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// TestRequestsOfAnyLengthAreAnswered: whatever the operation, a request that takes longer than the server's
// WriteTimeout has all of it for its answer.
func TestRequestsOfAnyLengthAreAnswered(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{0, 1 << 10} {
		h, _, ids, start := impatient(t, s3api.Options{MinRate: rate})
		server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(longer)
			h.ServeHTTP(w, r)
		}), false)
		requests := eachRequest()
		for _, of := range eachObjectRequest() {
			requests = append(requests, of...)
		}
		var all sync.WaitGroup
		for _, w := range requests {
			all.Go(func() {
				headers := make([]string, len(w.headers))
				for i := range headers {
					headers[i] = ids.Replace(w.headers[i])
				}
				_, _, err := answerOf(t, server, ids.Replace(w.call), strings.NewReader(ids.Replace(w.body)), headers...)
				assert.NoError(t, err, "%s, rate %d", w.call, rate)
			})
		}
		all.Wait()
	}
}

// lateBody begins late.
type lateBody struct {
	io.ReadCloser
	waited bool
}

func (b *lateBody) Read(p []byte) (int, error) {
	if !b.waited {
		b.waited = true
		time.Sleep(longer)
	}
	return b.ReadCloser.Read(p)
}

// inHalves is a body that comes in two halves.
func inHalves(body string) io.Reader {
	half := len(body) / 2
	rest := io.NopCloser(strings.NewReader(body[half:]))
	return io.MultiReader(strings.NewReader(body[:half]), &lateBody{ReadCloser: rest})
}

// TestSlowBodiesAreAnswered: those of puts and parts, as they are or in chunks, and copies into a slow place of bodies.
func TestSlowBodiesAreAnswered(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		h, b, ids, start := impatient(t, s3api.Options{MinRate: 1 << 10})
		server := start(h, http2)
		_, _, err := answerOf(t, server, "GET /", nil) // one connection of HTTP/2 is for all
		require.NoError(t, err)
		var all sync.WaitGroup
		stored := func(target string, body io.Reader, headers ...string) {
			all.Go(func() {
				status, text, err := answerOf(t, server, "PUT "+ids.Replace(target), body, headers...)
				assert.NoError(t, err, "%s %v", target, headers)
				assert.Equal(t, 200, status, "%s %v: %s", target, headers, text)
			})
		}
		const part = "/kept/up?uploadId={up}&partNumber="
		for i, size := range []int{1000, 200_000} { // within memory, and beside it
			body := strings.Repeat("b", size)
			chunks := chunked(body, []int{size / 3, size / 3}, true)
			inChunks := []string{"x-amz-content-sha256", sigv4.SignedChunks, "Content-Encoding", "aws-chunked",
				"x-amz-decoded-content-length", fmt.Sprint(size)}
			targets := []string{"/never/slow", "/kept/slow", part}
			if size < 4<<10 {
				targets = append(targets, "/full/slow") // a plain bucket
			}
			for _, target := range targets {
				target += fmt.Sprint(i + 2)
				stored(target+"0", inHalves(body))
				stored(target+"1", inHalves(chunks), inChunks...)
				stored(target+"2", inHalves(body), "Expect", "100-continue")
			}
		}
		all.Wait()
		b.delay = longer
		stored("/kept/copy", nil, "x-amz-copy-source", "/kept/a")
		stored(part+"9", nil, "x-amz-copy-source", "/kept/a")
		all.Wait()
	}
}

// TestAnswersThatNobodyReads: their time ends, although it begins with the answer.
func TestAnswersThatNobodyReads(t *testing.T) {
	t.Parallel()
	h, _, _, start := impatient(t, s3api.Options{})
	ended := make(chan struct{}, 1)
	server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			defer func() { ended <- struct{}{} }()
		}
		h.ServeHTTP(w, r)
	}), false)
	status, _, err := answerOf(t, server, "PUT /never/large", strings.NewReader(strings.Repeat("b", 32<<20)))
	require.NoError(t, err)
	require.Equal(t, 200, status)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /never/large HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		require.Fail(t, "the answer goes on")
	}
}
