package s3api

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// overBucket makes a handler over a bucket abc in memory.
func overBucket(t *testing.T, o Options) (*Handler, *listing.Client) {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "abc"))
	h, err := New(Over(c), o)
	require.NoError(t, err)
	return h, c
}

// freshBuffers empties the pool of buffers: those that others have used may have grown.
func freshBuffers() {
	makes, empty := xmlBuffers.New, false
	defer func() { xmlBuffers.New = makes }()
	xmlBuffers.New = func() any {
		empty = true
		return makes()
	}
	for !empty {
		xmlBuffers.Get()
	}
}

// sending calls at before each write of an answer's body.
type sending struct {
	*httptest.ResponseRecorder
	at func()
}

func (s *sending) Write(b []byte) (int, error) {
	s.at()
	return s.ResponseRecorder.Write(b)
}

// ofTheirSize has objects of as many bytes as their keys say.
type ofTheirSize struct{ *listing.Client }

type bucketOfTheirSize struct{ Bucket }

func (b ofTheirSize) Bucket(name string) Bucket { return bucketOfTheirSize{b.Client.Bucket(name)} }

func (bucketOfTheirSize) Get(_ context.Context, key []byte) (listing.Entry, error) {
	n, err := strconv.Atoi(string(key))
	return listing.Entry{Key: key, Value: make([]byte, n)}, err
}

// TestAnswersHoldTheirBytesOnly: while an answer is sent its request has no slot and no turn, of
// memory only what the answer has, and nothing for 4 KiB.
func TestAnswersHoldTheirBytesOnly(t *testing.T) {
	_, c := overBucket(t, Options{})
	h, err := New(ofTheirSize{c}, Options{})
	require.NoError(t, err)
	for target, want := range map[string]struct{ small, large int64 }{
		"/abc/4096":  {0, 0},
		"/abc/4097":  {4097, 0},
		"/abc/65536": {65_536, 0},
		"/abc/65537": {0, 65_537},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			sent := false
			w := &sending{httptest.NewRecorder(), func() {
				slots, small, large, askers := h.Held()
				require.Equal(t, []int64{0, want.small, want.large, 1}, []int64{int64(slots), small, large, int64(askers)},
					target)
				sent = true
			}}
			h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
			require.Equal(t, 200, w.Code)
			require.Equal(t, method == "GET", sent)
		}
	}
	freshBuffers()
	pages := 0
	w := &sending{httptest.NewRecorder(), func() {
		pages++
		_, small, large, _ := h.Held()
		require.Zero(t, small)
		require.Equal(t, int64(128<<10), large, "two new buffers: what the page did not need is given back")
		turns := h.o.turns()
		require.True(t, h.requests.turns.TryAcquire(turns))
		h.requests.turns.Release(turns)
	}}
	h.ServeHTTP(w, httptest.NewRequest("GET", "/abc?list-type=2", nil))
	require.Equal(t, 3, pages, "a head, contents, and prefixes with the end")
	slots, small, large, askers := h.Held()
	require.Equal(t, []int64{0, 0, 0, 0}, []int64{int64(slots), small, large, int64(askers)})
}

// TestAnswersWithoutMemory: an object that finds no memory is not sent; one of 4 KiB needs none.
func TestAnswersWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := overBucket(t, Options{})
		h, err := New(ofTheirSize{c}, Options{})
		require.NoError(t, err)
		require.True(t, h.requests.smalls.TryAcquire(h.requests.small))
		statuses := map[string]int{"/abc/4096": 200, "/abc/4097": 503, "/abc/65537": 200, "/abc?list-type=2": 200, "/": 200,
			"/abc?evenkeel-splits=2": 200}
		for target, status := range statuses {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
			require.Equal(t, status, w.Code, target)
			require.Equal(t, status == 503, strings.Contains(w.Body.String(), "<Code>SlowDown</Code>"), target)
		}
		h.requests.smalls.Release(h.requests.small)
		require.True(t, h.requests.larges.TryAcquire(h.requests.large))
		for target := range statuses {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
			small := target == "/abc/4096" || target == "/abc/4097"
			require.Equal(t, map[bool]int{true: 200, false: 503}[small], w.Code, target)
		}
	})
}

// TestTurns: pages and documents need one, other requests none.
func TestTurns(t *testing.T) {
	for call, needs := range map[string]bool{
		"GET /abc": true, "GET /abc?list-type=2": true, "GET /abc?versions": true, "GET /abc?evenkeel-splits=2": true,
		"POST /abc?delete": true,
		"GET /":            false, "HEAD /abc": false, "GET /abc?location": false, "PUT /abc/k": false, "GET /abc/k": false,
		"PUT /abd": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			h, c := overBucket(t, Options{})
			require.NoError(t, c.Bucket("abc").Put(t.Context(), []byte("k"), nil))
			require.True(t, h.requests.turns.TryAcquire(h.o.turns()))
			method, target, _ := strings.Cut(call, " ")
			body := ""
			if method == "POST" {
				body = "<Delete><Object><Key>k</Key></Object></Delete>"
			}
			r := httptest.NewRequest(method, target, strings.NewReader(body))
			if body != "" {
				sum := md5.Sum([]byte(body))
				r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
			}
			w := httptest.NewRecorder()
			begin := time.Now()
			h.ServeHTTP(w, r)
			if !needs {
				require.Equal(t, 200, w.Code, call)
				return
			}
			require.Equal(t, 30*time.Second, time.Since(begin), call)
			require.Contains(t, w.Body.String(), "<Code>SlowDown</Code><Message>Too many listings", call)
			_, err := c.Bucket("abc").Get(t.Context(), []byte("k"))
			require.NoError(t, err)
		})
	}
}

// TestBuffersAreUsedAgain: those of documents, but for very large ones.
func TestBuffersAreUsedAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties the pool
	h, _ := overBucket(t, Options{})
	makes, made := xmlBuffers.New, 0
	defer func() { xmlBuffers.New = makes }()
	xmlBuffers.New = func() any {
		made++
		return makes()
	}
	for target, each := range map[string]int{
		"/abc?list-type=2": 3, "/": 1, "/abc?location": 1, "/abc/none": 1, "/abc?list-type=2&max-keys=x": 1,
	} {
		made = 0
		const times = 400
		for range times {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
		}
		most := times / 2
		if race.Enabled { // then the pool forgets a quarter
			most += times * each / 4
		}
		require.Less(t, made, most, target)
	}
	kept := func(n int) bool {
		for range 100 {
			x := &xmlBuffer{b: make([]byte, 0, n)}
			x.free()
			if xmlBuffers.Get() == any(x) {
				return true
			}
		}
		return false
	}
	freshBuffers()
	require.True(t, kept(2<<20))
	require.False(t, kept(2<<20+1))
}

// TestBusyWhileWorking: Busy is told once when the work begins, and once when it ends, which is
// before an answer's body is sent.
func TestBusyWhileWorking(t *testing.T) {
	var told []string
	h, _ := overBucket(t, Options{Busy: func(ctx context.Context, busy bool) {
		require.Equal(t, "mine", ctx.Value(asker{}), "the request's context")
		told = append(told, map[bool]string{true: "busy", false: "idle"}[busy])
	}})
	for _, c := range []struct{ call, body, want string }{
		{"PUT /abc/k", "v", "busy idle"},
		{"GET /abc/k", "", "busy idle sent"},
		{"HEAD /abc/k", "", "busy idle"},
		{"GET /abc/none", "", "busy idle sent"},
		{"HEAD /abc/none", "", "busy idle"},
		{"GET /abc?list-type=2", "", "busy idle sent sent sent"},
		{"GET /abc?location", "", "busy idle sent"},
		{"GET /", "", "busy idle sent"},
		{"PUT /abc?acl", "", "busy idle sent"},
		{"GET /abc?policy", "", "sent"},
		{"PUT /abc/" + strings.Repeat("k", 1025), "v", "sent"},
		{"PUT /abc/large", strings.Repeat("v", 4097), "sent"},
		{"DELETE /abc/k", "", "busy idle"},
		{"PUT /abd", "", "busy idle"},
	} {
		told = nil
		method, target, _ := strings.Cut(c.call, " ")
		r := httptest.NewRequest(method, target, strings.NewReader(c.body))
		r = r.WithContext(context.WithValue(t.Context(), asker{}, "mine"))
		h.ServeHTTP(&sending{httptest.NewRecorder(), func() { told = append(told, "sent") }}, r)
		require.Equal(t, c.want, strings.Join(told, " "), "%.40s", c.call)
	}
}

// read records the deadlines of reading that are set.
type read struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (r *read) SetReadDeadline(t time.Time) error {
	r.set = append(r.set, t)
	return nil
}

// TestLongReadsWatchTheirClients: with a minimum rate the deadline of the body is taken back, as
// it would look as if the client had left.
func TestLongReadsWatchTheirClients(t *testing.T) {
	for rate, want := range map[int64]map[string][]time.Time{
		0: {"/abc": nil, "/": nil, "/abc/k": nil, "/abc?location": nil},
		1: {"/abc": {{}}, "/": {{}}, "/abc/k": nil, "/abc?location": nil},
	} {
		h, _ := overBucket(t, Options{MinRate: rate})
		for target, set := range want {
			w := &read{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
			require.Equal(t, set, w.set, "%s at %d", target, rate)
		}
	}
}

// patient answers reads when their time has ended.
type patient struct{ *listing.Client }

func (p patient) Bucket(string) Bucket { return patientBucket{} }

func (p patient) Buckets(ctx context.Context, _, _ string) iter.Seq2[listing.BucketInfo, error] {
	return func(yield func(listing.BucketInfo, error) bool) {
		<-ctx.Done()
		yield(listing.BucketInfo{}, ctx.Err())
	}
}

type patientBucket struct{}

func (patientBucket) wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (p patientBucket) Put(ctx context.Context, _, _ []byte) error { return p.wait(ctx) }
func (p patientBucket) Delete(ctx context.Context, _ []byte) error { return p.wait(ctx) }
func (p patientBucket) DeleteRangeUntil(ctx context.Context, _, _ []byte, _ time.Time) ([]byte, error) {
	return nil, p.wait(ctx)
}
func (p patientBucket) Settings(context.Context) ([]byte, error) { return nil, nil }
func (p patientBucket) Get(ctx context.Context, _ []byte) (listing.Entry, error) {
	return listing.Entry{}, p.wait(ctx)
}
func (p patientBucket) List(ctx context.Context, _ listing.Query) (listing.Page, error) {
	return listing.Page{}, p.wait(ctx)
}
func (p patientBucket) SplitPoints(ctx context.Context, _ listing.Query, _ int) ([][]byte, error) {
	return nil, p.wait(ctx)
}

// TestWorkForClientsThatLeft: what may take long ends a second after its client has left, all
// else, and work for clients that stay, with the time for requests.
func TestWorkForClientsThatLeft(t *testing.T) {
	for call, long := range map[string]bool{
		"GET /": true, "GET /abc": true, "GET /abc?list-type=2": true, "GET /abc?versions": true,
		"GET /abc?evenkeel-splits=2": true,
		"HEAD /abc":                  false, "GET /abc?location": false, "GET /abc/k": false, "HEAD /abc/k": false,
		"PUT /abc/k": false, "DELETE /abc/k": false,
	} {
		for _, leaves := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				h, err := New(patient{}, Options{RequestTimeout: time.Hour})
				require.NoError(t, err)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if leaves {
					time.AfterFunc(time.Minute, leave)
				}
				method, target, _ := strings.Cut(call, " ")
				begin := time.Now()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(method, target, nil).WithContext(ctx))
				require.Equal(t, 503, w.Code, call)
				want := time.Hour
				if leaves && long {
					want = time.Minute + time.Second
				}
				require.Equal(t, want, time.Since(begin), call)
			})
		}
	}
}

// followed is a context that knows who follows it.
type followed struct {
	context.Context
	followers int
	done      chan struct{}
}

func (f *followed) Done() <-chan struct{} { return f.done }

func (f *followed) AfterFunc(func()) (stop func() bool) {
	f.followers++
	return func() bool {
		f.followers--
		return true
	}
}

// TestNobodyFollowsAClientForEver: what follows a request's client ends with the request.
func TestNobodyFollowsAClientForEver(t *testing.T) {
	h, _ := overBucket(t, Options{})
	for _, target := range []string{"/abc", "/", "/abc/k"} {
		f := &followed{Context: t.Context(), done: make(chan struct{})}
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil).WithContext(f))
		require.Zero(t, f.followers, target)
	}
}

// contexts notes the contexts of calls.
type contexts struct {
	*listing.Client
	seen []context.Context
}

func (c *contexts) Bucket(string) Bucket { return contextsOfBucket{patientBucket{}, c} }

func (c *contexts) Buckets(ctx context.Context, _, _ string) iter.Seq2[listing.BucketInfo, error] {
	c.seen = append(c.seen, ctx)
	return func(func(listing.BucketInfo, error) bool) {}
}

type contextsOfBucket struct {
	patientBucket
	of *contexts
}

func (c contextsOfBucket) List(ctx context.Context, _ listing.Query) (listing.Page, error) {
	c.of.seen = append(c.of.seen, ctx)
	return listing.Page{}, ctx.Err()
}

// TestContextsEnd: with their requests.
func TestContextsEnd(t *testing.T) {
	c := &contexts{}
	h, err := New(c, Options{})
	require.NoError(t, err)
	for i, target := range []string{"/abc", "/abc?location", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		require.Equal(t, 200, w.Code, target)
		require.Len(t, c.seen, i+1)
		require.ErrorIs(t, c.seen[i].Err(), context.Canceled, target)
	}
	ended := 0
	x := &exchange{r: httptest.NewRequest("GET", "/abc/k", nil), end: func() { ended++ }}
	h.extend(x)
	x.end()
	require.Equal(t, 1, ended)
	require.ErrorIs(t, x.ctx().Err(), context.Canceled)
}

// TestWaitingForBytes: a second, or until the request ends; what is free is had at once, by those
// too whose client has ended its sending side.
func TestWaitingForBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore.NewWeighted(10)
		left, leave := context.WithCancel(t.Context())
		leave()
		require.NoError(t, acquire(left, s, 10))
		require.ErrorIs(t, acquire(left, s, 1), context.Canceled)
		begin := time.Now()
		require.ErrorIs(t, acquire(t.Context(), s, 1), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
		time.AfterFunc(time.Second-1, func() { s.Release(1) })
		require.NoError(t, acquire(t.Context(), s, 1))
		f := &followed{Context: t.Context(), done: make(chan struct{})}
		time.AfterFunc(time.Second/2, func() { s.Release(1) })
		require.NoError(t, acquire(f, s, 1))
		require.Zero(t, f.followers)
	})
}

// TestBytesOfEachAsker: one gets three quarters of those for large requests. What is refused
// takes nothing.
func TestBytesOfEachAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(10, 16<<20, 4) // 4 MiB for small ones, 12 for large ones, of them 9 for each
		enter := func(key string) *held {
			a := asker{key: key}
			return &held{of: r, asker: a, mine: r.enter(a)}
		}
		x, y := enter("x"), enter("y")
		require.Nil(t, x.take(t.Context(), 64<<10))
		require.Equal(t, []int64{64 << 10, 0}, []int64{x.small, x.large})
		require.Nil(t, x.take(t.Context(), 1<<40), "all that it can get")
		require.Equal(t, []int64{64 << 10, 9 << 20}, []int64{x.small, x.large})
		again := enter("x")
		refusal := again.take(t.Context(), 64<<10+1)
		require.NotNil(t, refusal)
		require.Equal(t, "SlowDown", refusal.Code)
		require.ErrorIs(t, refusal, context.DeadlineExceeded)
		require.NotNil(t, y.take(t.Context(), 3<<20+1))
		require.True(t, y.mine.larges.TryAcquire(9<<20), "nothing is kept of what was refused")
		y.mine.larges.Release(9 << 20)
		require.Nil(t, y.take(t.Context(), 3<<20))
		require.Nil(t, y.take(t.Context(), 64<<10))
		x.shrink(10 << 20)
		require.Equal(t, int64(9<<20), x.large, "there is nothing beyond")
		x.shrink(1 << 20)
		require.Equal(t, int64(1<<20), x.large)
		require.Nil(t, again.take(t.Context(), 8<<20))
		require.NotNil(t, again.take(t.Context(), 64<<10+1))
		for _, m := range []*held{x, y, again} {
			m.release()
			m.release() // once is enough
		}
		require.True(t, r.smalls.TryAcquire(4<<20))
		require.True(t, r.larges.TryAcquire(12<<20))
		require.Empty(t, r.by)
	})
}

// TestParametersThatStandForHeaders: those of AWS, where no header says otherwise.
func TestParametersThatStandForHeaders(t *testing.T) {
	r := httptest.NewRequest("PUT", "/abc/k", nil)
	r.Header = http.Header{"X-Amz-Acl": {"private"}}
	require.NoError(t, lowerHoisted(r, url.Values{"x-amz-acl": {"public-read"}, "x-amz-meta-a": {"1", "2"},
		"X-Amz-Tagging": {"t"}, "content-type": {"x"}, "If-Match": {"y"}, "x-evenkeel-size": {"5"},
		"response-expires": {"z"}, "x-amz": {"a"}}))
	require.Equal(t, http.Header{"X-Amz-Acl": {"private"}, "X-Amz-Meta-A": {"1", "2"}, "X-Amz-Tagging": {"t"}}, r.Header)
	for _, bad := range []url.Values{
		{"x-amz-tagg\u0130ng": {"v"}}, {"x-amz-a:b": {"v"}}, {"x-amz-a\n": {"v"}}, {"X-AMZ-A ": {"v"}},
		{"x-amz-meta-a": {"v"}, "X-Amz-Meta-A": {"w"}},
		{"AWSAccessKeyId": {"A"}, "x-amz-a": {"1", "2"}}, {"AWSAccessKeyId": {"A"}, "content-md5": {"a\nb"}},
	} {
		r.Header = http.Header{}
		require.Error(t, lowerHoisted(r, bad), "%q", bad)
		require.Empty(t, r.Header)
	}
}

// TestPagesOfAMebibyte: the object with which a document reaches a mebibyte is the last of its
// page, and the page is the last of its listing if nothing follows.
func TestPagesOfAMebibyte(t *testing.T) {
	_, c := overBucket(t, Options{})
	bucket := c.Bucket("abc")
	put := func(key string) { require.NoError(t, bucket.Put(t.Context(), []byte(key), nil)) }
	l := &listQuery{maxKeys: 1000}
	list := func(next listing.Token) (p *listPage, page listing.Page, room bool) {
		page, err := bucket.List(t.Context(), listing.Query{Limit: 1000})
		require.NoError(t, err)
		require.Empty(t, page.Next)
		page.Next = next
		p = newListPage(l)
		t.Cleanup(p.free)
		room, err = p.add(&page)
		require.NoError(t, err)
		return p, page, room
	}
	for i := range 800 {
		put(fmt.Sprintf("a%0999d", i))
	}
	p, _, _ := list("")
	each := len(p.contents.b)/800 - 1000
	left := maxPageXML - len(p.contents.b)
	for i := 0; left >= 2*(each+1000); i++ {
		put(fmt.Sprintf("b%0999d", i))
		left -= each + 1000
	}
	half := left/2 - each
	put(strings.Repeat("c", half))
	left -= 2*each + half
	for length, full := range map[int]bool{left - 1: false, left: true} {
		last := strings.Repeat("d", length)
		put(last)
		for _, next := range []listing.Token{"", "t"} {
			p, page, room := list(next)
			require.Equal(t, []any{!full, next != "", next}, []any{room, p.truncated, p.next})
			require.Equal(t, maxPageXML-left+length, len(p.contents.b))
			require.Equal(t, len(page.Items), p.n)
		}
		put("e")
		p, page, room := list("")
		require.False(t, room, "reached by the last but one, or by the last")
		require.Equal(t, full, p.truncated)
		require.Equal(t, full, p.n == len(page.Items)-1)
		require.Equal(t, full, p.next != "")
		require.NoError(t, bucket.Delete(t.Context(), []byte("e")))
		require.NoError(t, bucket.Delete(t.Context(), []byte(last)))
	}
}
