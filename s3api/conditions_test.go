package s3api_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const (
	helloETag = "5d41402abc4b2a76b9719d911017c592"
	past      = "Fri, 24 May 2013 00:00:00 GMT"
	future    = "Fri, 24 May 2099 00:00:00 GMT"
)

func TestConditionsOfReads(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "hello", "Cache-Control", "no-cache")
	modified := s.want(200, "", "HEAD", "/abc/k", "").header.Get("Last-Modified")
	for headers, status := range map[string]int{
		`If-Match: "` + helloETag + `"`:                               200,
		`If-Match: ` + helloETag:                                      200,
		`If-Match: W/"` + helloETag + `"`:                             200,
		`If-Match: *`:                                                 200,
		`If-Match: "other", "` + helloETag + `"`:                      200,
		`If-Match: other`:                                             412,
		`If-Match: ""`:                                                412,
		`If-None-Match: "` + helloETag + `"`:                          304,
		`If-None-Match: ` + helloETag:                                 304,
		`If-None-Match: *`:                                            304,
		`If-None-Match: other`:                                        200,
		`If-Modified-Since: ` + past:                                  200,
		`If-Modified-Since: ` + future:                                200,
		`If-Modified-Since: ` + modified:                              304,
		`If-Modified-Since: yesterday`:                                200,
		`If-Unmodified-Since: ` + past:                                412,
		`If-Unmodified-Since: ` + modified:                            200,
		`If-Unmodified-Since: ` + future:                              200,
		`If-Match: ` + helloETag + `|If-Unmodified-Since: ` + past:    200,
		`If-None-Match: ` + helloETag + `|If-Modified-Since: ` + past: 304,
		`If-None-Match: other|If-Modified-Since: ` + future:           200,
		`If-Match: other|If-None-Match: ` + helloETag:                 412,
		`If-Match: ` + helloETag + `|If-None-Match: ` + helloETag:     304,
		`If-None-Match: ` + helloETag + `|Range: bytes=0-1`:           304,
		`If-Range: "` + helloETag + `"|Range: bytes=0-1`:              206,
		`If-Range: "other"|Range: bytes=0-1`:                          200,
		`If-Range: ` + modified + `|Range: bytes=0-1`:                 206,
		`If-Range: ` + past + `|Range: bytes=0-1`:                     200,
	} {
		var pairs []string
		for h := range strings.SplitSeq(headers, "|") {
			name, value, _ := strings.Cut(h, ": ")
			pairs = append(pairs, name, value)
		}
		for _, method := range []string{"GET", "HEAD"} {
			a := s.do(method, "/abc/k", "", pairs...)
			require.Equal(t, status, a.status, "%s with %s", method, headers)
			switch {
			case status == 304:
				require.Empty(t, a.body)
				require.Equal(t, `"`+helloETag+`"`, a.header.Get("ETag"))
				require.Equal(t, "no-cache", a.header.Get("Cache-Control"))
				require.Equal(t, modified, a.header.Get("Last-Modified"))
			case status == 412 && method == "GET":
				require.Equal(t, "PreconditionFailed", a.code())
				require.Contains(t, a.body, "<Condition>If-")
			}
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		s.want(404, "NoSuchKey", method, "/abc/none", "", "If-Match", helloETag)
		s.want(404, "NoSuchKey", method, "/abc/none", "", "If-None-Match", "*")
	}
	// Where nothing has an ETag, conditions have nothing to say.
	s.want(200, "", "GET", "/abc?list-type=2", "", "If-None-Match", "*")
	require.True(t, s3api.MatchesETag(`"a,b"`, "a,b"))
	require.False(t, s3api.MatchesETag(`"a,b"`, "a,b,c"))
}

func TestRanges(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "hello")
	s.want(200, "", "PUT", "/abc/empty", "")
	for value, want := range map[string]string{
		"bytes=0-1": "he", "bytes=0-": "hello", "bytes=1-3": "ell", "bytes=4-4": "o", "bytes=4-100": "o",
		"bytes=-2":   "lo",
		"bytes=-100": "hello", "Bytes=0-0": "h",
	} {
		a := s.want(206, "", "GET", "/abc/k", "", "Range", value)
		require.Equal(t, want, a.body, value)
		require.Equal(t, strconv.Itoa(len(want)), a.header.Get("Content-Length"))
		start := strings.LastIndex("hello", want)
		require.Equal(t, fmt.Sprintf("bytes %d-%d/5", start, start+len(want)-1), a.header.Get("Content-Range"), value)
		require.Equal(t, `"`+helloETag+`"`, a.header.Get("ETag"))
		a = s.want(206, "", "HEAD", "/abc/k", "", "Range", value)
		require.Equal(t, strconv.Itoa(len(want)), a.header.Get("Content-Length"))
	}
	s.want(200, "", "PUT", "/abc/long", strings.Repeat("x", 2000))
	for _, method := range []string{"GET", "HEAD"} {
		a := s.want(206, "", method, "/abc/long", "", "Range", "bytes=100-1099")
		require.Equal(t, []string{"1000", "bytes 100-1099/2000"},
			[]string{a.header.Get("Content-Length"), a.header.Get("Content-Range")})
	}
	for _, ignored := range []string{"bytes=", "bytes=-", "bytes=1", "bytes 1-2", "bytes=3-1", "bytes=a-", "bytes=a-b", "bytes", "lines=0-1",
		"bytes=0-1,3-4",
		"bytes=--1", "bytes=+1-2", "bytes=99999999999999999999-", "bytes=9223372036854775808-",
		"bytes=-9223372036854775808", "bytes=0-9223372036854775808"} {
		require.Equal(t, "hello", s.want(200, "", "GET", "/abc/k", "", "Range", ignored).body, ignored)
	}
	for _, beyond := range []string{"bytes=5-", "bytes=5-9", "bytes=-0"} {
		a := s.want(416, "InvalidRange", "GET", "/abc/k", "", "Range", beyond)
		require.Equal(t, "bytes */5", a.header.Get("Content-Range"))
		s.want(416, "", "HEAD", "/abc/k", "", "Range", beyond)
	}
	for _, beyond := range []string{"bytes=0-", "bytes=0-0", "bytes=-0"} {
		s.want(416, "InvalidRange", "GET", "/abc/empty", "", "Range", beyond)
	}
	// The last bytes of an empty object are none: readers of the ends of files ask for them.
	for _, last := range []string{"bytes=-1", "bytes=-8"} {
		a := s.want(200, "", "GET", "/abc/empty", "", "Range", last)
		require.Equal(t, []string{"", "0", ""}, []string{a.body, a.header.Get("Content-Length"), a.header.Get("Content-Range")})
		s.want(200, "", "HEAD", "/abc/empty", "", "Range", last)
	}
}

func FuzzParseRange(f *testing.F) {
	for _, v := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=9-3", "x"} {
		f.Add(v, int64(5))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		size = max(size, 0)
		start, length, partial, code := s3api.ParseRange(value, size)
		if code != "" {
			return
		}
		if start < 0 || length < 0 || start+length > size || !partial && length != size || partial && length == 0 {
			t.Fatalf("%q of %d: %d bytes from %d on", value, size, length, start)
		}
	})
}

func TestConditionsOfWrites(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s := serveStore(t, open(t))
			s.want(200, "", "PUT", "/abc", "")
			s.want(404, "NoSuchKey", "PUT", "/abc/k", "v", "If-Match", helloETag)
			s.want(404, "NoSuchKey", "PUT", "/abc/k", "v", "If-Match", "*")
			s.want(404, "NoSuchKey", "DELETE", "/abc/k", "", "If-Match", helloETag)
			s.want(404, "NoSuchBucket", "PUT", "/abd/k", "v", "If-None-Match", "*")
			s.want(200, "", "PUT", "/abc/k", "hello", "If-None-Match", "*")
			a := s.want(412, "PreconditionFailed", "PUT", "/abc/k", "v", "If-None-Match", "*")
			require.Contains(t, a.body, "<Condition>If-None-Match</Condition>")
			s.want(412, "PreconditionFailed", "PUT", "/abc/k", "v", "If-Match", `"other"`)
			s.want(412, "PreconditionFailed", "DELETE", "/abc/k", "", "If-Match", `"other"`)
			s.want(412, "PreconditionFailed", "PUT", "/abc/k", "v", "If-Match", helloETag, "If-None-Match", "*")
			require.Equal(t, "hello", s.do("GET", "/abc/k", "").body)
			s.want(200, "", "PUT", "/abc/k", "world", "If-Match", helloETag)
			s.want(412, "PreconditionFailed", "PUT", "/abc/k", "v", "If-Match", helloETag)
			s.want(204, "", "DELETE", "/abc/k", "", "If-Match", "*")
			s.want(200, "", "PUT", "/abc/k", "v", "If-None-Match", "*")
			s.want(200, "", "PUT", "/abc/k", "v", "If-None-Match", `"a", "b"`)
			s.want(412, "PreconditionFailed", "PUT", "/abc/k", "w", "If-None-Match", `"a", "9e3669d19b675bd57058fd4664205d2a"`)
			require.Equal(t, "v", s.do("GET", "/abc/k", "").body)
			s.want(501, "NotImplemented", "PUT", "/abc/k", "v", "If-Unmodified-Since", past)
			s.want(501, "NotImplemented", "DELETE", "/abc/k", "", "If-None-Match", "*")
			s.want(501, "NotImplemented", "DELETE", "/abc", "", "If-Match", "*")
		})
	}
	// Where others write too, a condition can't be exact: it is refused.
	s := serve(t, &faulty{}, s3api.Options{})
	for _, h := range []string{"If-Match", "If-None-Match"} {
		s.want(501, "NotImplemented", "PUT", "/abc/k", "v", h, "*")
	}
	s.want(200, "", "PUT", "/abc/k", "v")
	s = serve(t, &faulty{err: store.Errorf(store.Unavailable, "away")}, s3api.Options{SoleWriter: true})
	s.want(503, "ServiceUnavailable", "PUT", "/abc/k", "v", "If-None-Match", "*")
	s = serve(t, &faulty{err: errors.New("broken")}, s3api.Options{SoleWriter: true})
	s.want(500, "InternalError", "PUT", "/abc/k", "v", "If-Match", "*")
}

// Many clients count in one object, each by If-Match; others overwrite and
// delete it without a condition in between, and begin it anew with
// If-None-Match. A write with a condition follows on exactly the object that it
// named.
func TestConditionsAreExact(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			seed := seed.Number(t)
			s := serveStore(t, open(t))
			s.want(200, "", "PUT", "/abc", "")
			s.want(200, "", "PUT", "/abc/k", "0 begin")
			var wg sync.WaitGroup
			var mu sync.Mutex
			followed := map[string]int{} // body that was overwritten by a condition -> how often
			var counted, clashes atomic.Int64
			for worker := range 8 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
					for i := range 30 {
						a := s.do("GET", "/abc/k", "")
						mine := fmt.Sprintf("%d/%d", worker, i) // no two bodies are the same
						switch {
						case a.status == http.StatusNotFound:
							s.do("PUT", "/abc/k", mine, "If-None-Match", "*")
						case rnd.IntN(12) == 0:
							s.do("PUT", "/abc/k", mine)
						case rnd.IntN(24) == 0:
							s.do("DELETE", "/abc/k", "", "If-Match", a.header.Get("ETag"))
						default:
							switch put := s.do("PUT", "/abc/k", mine, "If-Match", a.header.Get("ETag")); put.status {
							case 200:
								counted.Add(1)
								mu.Lock()
								followed[a.body]++
								mu.Unlock()
							case 412, 404:
								clashes.Add(1)
							default:
								t.Errorf("%d %s", put.status, put.body)
							}
						}
					}
				})
			}
			wg.Wait()
			for body, n := range followed {
				require.Equal(t, 1, n, "%q was followed by %d writes that had named it", body, n)
			}
			require.Positive(t, counted.Load())
			t.Logf("%d followed on, %d clashed", counted.Load(), clashes.Load())

			// Of many that create one object, one does.
			for round := range 20 {
				var created atomic.Int64
				for range 8 {
					wg.Go(func() {
						if s.do("PUT", fmt.Sprintf("/abc/new%d", round), "v", "If-None-Match", "*").status == 200 {
							created.Add(1)
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, 1, created.Load())
			}
		})
	}
}

// stuck is a store in which writes of rows wait for leave, while it is on; each
// says first that it has begun.
type stuck struct {
	store.Store
	on    atomic.Bool
	began chan struct{}
	leave chan struct{}
}

func (s *stuck) wait() {
	if s.on.Load() {
		s.began <- struct{}{}
		<-s.leave
	}
}

func (s *stuck) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.wait()
	return s.Store.Put(ctx, p, rows...)
}

func (s *stuck) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.wait()
	return s.Store.Delete(ctx, p, key, ts)
}

func serveStuck(t *testing.T, o s3api.Options) (*stuck, *server) {
	st := &stuck{Store: memstore.New(), began: make(chan struct{}, 100), leave: make(chan struct{})}
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	o.SoleWriter, o.RequestTimeout = true, time.Second
	s := serve(t, s3api.Over(c), o)
	s.want(200, "", "PUT", "/abc", "")
	return st, s
}

// TestConditionsOutliveRequests: as long as a write may happen yet whose request has
// ended, no condition is judged. Writes without one go on, and win over it.
func TestConditionsOutliveRequests(t *testing.T) {
	for first, before := range map[string]string{"PUT If-None-Match": "", "PUT": "", "DELETE": "v",
		"DELETE If-Match": "v"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel() // it waits for the end of a request's time
			st, s := serveStuck(t, s3api.Options{})
			if before != "" {
				s.want(200, "", "PUT", "/abc/k", before)
			}
			method, condition, _ := strings.Cut(first, " ")
			var headers []string
			if condition != "" {
				headers = []string{condition, "*"}
			}
			body := ""
			if method == "PUT" {
				body = "first"
			}
			st.on.Store(true)
			s.want(503, "ServiceUnavailable", method, "/abc/k", body, headers...)
			<-st.began
			st.on.Store(false)

			second := []string{"If-None-Match", "*"}
			if before != "" {
				second[0] = "If-Match"
			}
			a := s.want(409, "ConditionalRequestConflict", "PUT", "/abc/k", "second", second...)
			require.Contains(t, a.body, "Nothing was written")
			s.want(200, "", "PUT", "/abc/other", "v", "If-None-Match", "*") // other keys aren't concerned
			if method == "PUT" {
				s.want(200, "", "PUT", "/abc/k", "third")
			}

			// What was under way ends; then conditions are judged by what became of it.
			answered := make(chan answer, 1)
			go func() { answered <- s.do("PUT", "/abc/k", "fourth", second...) }()
			close(st.leave)
			want := 412
			if before != "" {
				want = 404
			}
			require.Equal(t, want, (<-answered).status)
			if method == "PUT" {
				require.Equal(t, "third", s.want(200, "", "GET", "/abc/k", "").body, "the later one wins")
			} else {
				s.want(404, "NoSuchKey", "GET", "/abc/k", "")
			}
		})
	}
}

// TestWritesUnderWayAreBounded: a store that hangs does not gather writes without end.
func TestWritesUnderWayAreBounded(t *testing.T) {
	st, s := serveStuck(t, s3api.Options{MaxRequests: 3})
	st.on.Store(true)
	for i := range 3 {
		s.want(503, "ServiceUnavailable", "PUT", fmt.Sprintf("/abc/%d", i), "v")
	}
	a := s.want(503, "SlowDown", "PUT", "/abc/more", "v")
	require.Contains(t, a.body, "Nothing was written")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	s.want(404, "NoSuchKey", "GET", "/abc/more", "") // reads go on
	require.Len(t, st.began, 3, "no more was begun")
	st.on.Store(false)
	close(st.leave)
	require.Eventually(t, func() bool { return s.do("PUT", "/abc/more", "v").status == 200 }, time.Minute,
		time.Millisecond)
	noLocks := func() bool { return s.handler.(*s3api.Handler).KeyLocks() == 0 }
	require.Eventually(t, noLocks, time.Minute, time.Millisecond, "locks are kept while they are held only")
	for i := range 3 { // all have ended
		s.want(200, "", "GET", fmt.Sprintf("/abc/%d", i), "")
	}
}

// TestWritesWaitForConditions: a write without a condition waits for one that is
// being judged, and at its own end it is told that it was not written.
func TestWritesWaitForConditions(t *testing.T) {
	held, judged := make(chan struct{}), make(chan struct{}, 1)
	f := &judging{faulty: &faulty{err: listing.ErrNotFound}, held: held, judged: judged}
	s := serve(t, f, s3api.Options{SoleWriter: true, RequestTimeout: 500 * time.Millisecond})
	done := make(chan answer, 1)
	go func() { done <- s.do("PUT", "/abc/k", "v", "If-None-Match", "*") }()
	<-judged
	a := s.want(503, "ServiceUnavailable", "PUT", "/abc/k", "w")
	require.Contains(t, a.body, "Nothing was written")
	a = s.want(409, "ConditionalRequestConflict", "DELETE", "/abc/k", "", "If-Match", "*")
	require.Contains(t, a.body, "Nothing was written")
	close(held)
	require.Equal(t, 404, (<-done).status, "as faulty answers each put")
}

// judging lets reads of objects wait, whatever becomes of their requests.
type judging struct {
	*faulty
	held, judged chan struct{}
}

func (*judging) Settings(context.Context) ([]byte, error) { return nil, nil }

func (j *judging) Bucket(string) s3api.Bucket { return j }

func (j *judging) Get(ctx context.Context, key []byte) (listing.Entry, error) {
	j.judged <- struct{}{}
	<-j.held
	return j.faulty.Get(ctx, key)
}

// A read with a condition costs what a read costs: seconds are compared, as they
// are shown.
func TestDatesHaveSeconds(t *testing.T) {
	now := time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC)
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	o := s3api.Object{Modified: now, Body: []byte("hello")}
	require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte("k"), o.AppendRecord(nil)))
	at := now.Truncate(time.Second).Format(http.TimeFormat)
	s.want(304, "", "GET", "/abc/k", "", "If-Modified-Since", at)
	s.want(200, "", "GET", "/abc/k", "", "If-Unmodified-Since", at)
	s.want(412, "", "GET", "/abc/k", "", "If-Unmodified-Since",
		now.Add(-time.Second).Truncate(time.Second).Format(http.TimeFormat))
}
