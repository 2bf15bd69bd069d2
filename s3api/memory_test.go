package s3api_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// limited serves from memory with limits; idle is how many empty ranges a page of the
// client reads past.
func limited(t *testing.T, idle int, o s3api.Options) *server {
	t.Helper()
	c, err := listing.New(memstore.New(), listing.Options{MaxIdleReads: idle})
	require.NoError(t, err)
	o.SoleWriter = true
	s := serve(t, s3api.Over(c), o)
	s.buckets = c
	return s
}

// open sends the beginning of a request, or all of it, and leaves it at that.
func (s *server) open(text string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(s.t, err)
	return conn
}

// heldIs waits until requests hold what they should.
func (s *server) heldIs(what string, is func(slots int, small, large int64, askers int) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return is(s.handler.(*s3api.Handler).Held()) }, 10*time.Second,
		time.Millisecond, what)
}

func nothing(slots int, small, large int64, askers int) bool {
	return slots == 0 && small == 0 && large == 0 && askers == 0
}

// TestBodiesThatDoNotComeTakeNoSlot: a request takes a slot when its body is there.
func TestBodiesThatDoNotComeTakeNoSlot(t *testing.T) {
	s := limited(t, 0, s3api.Options{MaxRequests: 1})
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "v")
	var slow []net.Conn
	for _, call := range []string{"PUT /abc/k", "POST /abc?delete", "PUT /abd", "PUT /abe?evenkeel-cuts",
		"PUT /abc?acl", "PUT /abc/k?acl"} {
		slow = append(slow,
			s.open(call+" HTTP/1.1\r\nHost: h\r\nContent-MD5: "+md5Of("hello")+"\r\nContent-Length: 5\r\n\r\nhel"))
	}
	s.heldIs("bytes and no slots", func(slots int, small, large int64, askers int) bool {
		return slots == 0 && small > 0 && large > 0 && askers == 1
	})
	s.want(200, "", "PUT", "/abc/k2", "v")
	s.want(200, "", "GET", "/abc?list-type=2", "")
	for _, conn := range slow {
		require.NoError(t, conn.Close())
	}
	s.heldIs("nothing", nothing)
}

// TestUnreadPagesAreBounded: pages that nobody reads take memory and no slots; with all of
// it taken others are told so, and small requests go on.
func TestUnreadPagesAreBounded(t *testing.T) {
	s := limited(t, 0, s3api.Options{MaxRequests: 4, MemoryBytes: 16 << 20})
	s.want(200, "", "PUT", "/abc", "")
	for i := range 1000 {
		require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), fmt.Appendf(nil, "%0900d", i), []byte("v")))
	}
	var unread []net.Conn
	full := false
	for range 60 {
		conn := s.open(strings.Repeat("GET /abc?list-type=2&encoding-type=url HTTP/1.1\r\nHost: h\r\n\r\n", 20))
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1<<10))
		unread = append(unread, conn)
		a := s.do("GET", "/abc?list-type=2", "")
		if full = a.status != 200; full {
			require.Equal(t, "SlowDown", a.code())
			require.Contains(t, a.body, "all the memory")
			require.Equal(t, "1", a.header.Get("Retry-After"))
			break
		}
	}
	require.True(t, full, "60 pages of a megabyte fit into 12")
	s.heldIs("no slots", func(slots int, _, large int64, _ int) bool { return slots == 0 && large <= 12<<20 })
	s.want(200, "", "PUT", "/abc/k", strings.Repeat("v", 4096))
	s.want(200, "", "GET", "/abc/k", "")
	for _, conn := range unread {
		require.NoError(t, conn.Close())
	}
	s.heldIs("nothing", nothing)
	s.want(200, "", "GET", "/abc?list-type=2", "")
}

// TestSlotsAreShared: however many ask for all that they can get, one slot at least is
// left for the next, and one who asks alone gets three quarters.
func TestSlotsAreShared(t *testing.T) {
	for askers, want := range map[int]int{1: 768, 2: 438, 10: 99} {
		has, free := make([]int, askers), 1024
		for more := true; more; {
			more = false
			for i := range has {
				if free > 0 && webguard.MayTake(has[i], free) {
					has[i]++
					free--
					more = true
				}
			}
		}
		require.InDelta(t, want, has[0], 1.5, "%d askers: %v", askers, has)
		require.Positive(t, free)
	}
	// One key that has its share does not keep another one out.
	wait := make(chan struct{})
	f := &faulty{wait: wait, began: make(chan struct{}, 8)}
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	s := serve(t, f, s3api.Options{MaxRequests: 4, Keys: keys})
	answers := make(chan int, 4)
	for range 3 {
		go func() { answers <- s.as("PHOTOS").do("HEAD", "/photos", "").status }()
		<-f.began
	}
	s.as("PHOTOS").want(503, "SlowDown", "GET", "/photos?acl", "")
	go func() { answers <- s.as("ADMIN").do("HEAD", "/photos", "").status }()
	<-f.began
	close(wait)
	for range 4 {
		require.Equal(t, 200, <-answers)
	}
	s.heldIs("nothing", nothing)
}

// TestPagesEndByTheirDocument: pages of long keys are short, and together complete.
func TestPagesEndByTheirDocument(t *testing.T) {
	race.Skip(t)
	s := limited(t, 0, s3api.Options{})
	s.want(200, "", "PUT", "/abc", "")
	var want []string
	for i := range 600 {
		key := fmt.Sprintf("%04d%s%03d/x", i/5, strings.Repeat("&", 900), i)
		want = append(want, key)
		require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte(key), bytes.Repeat([]byte{'v'}, 1500)))
	}
	for _, query := range []string{"list-type=2", "list-type=2&encoding-type=url", "", "encoding-type=url",
		"delimiter=/", "versions"} {
		got, pages := s.listAll("/abc?"+query, 2<<20)
		if strings.Contains(query, "delimiter") {
			for i := range want {
				require.Equal(t, strings.TrimSuffix(want[i], "x"), got[i])
			}
		} else {
			require.Equal(t, want, got, query)
		}
		require.GreaterOrEqual(t, pages, 2, query)
	}
	s.heldIs("nothing", nothing)
}

// listAll follows a listing to its end; no document is larger than most.
func (s *server) listAll(uri string, most int) (found []string, pages int) {
	s.t.Helper()
	urls := strings.Contains(uri, "encoding-type=url")
	text := func(v string) string {
		if urls {
			v, _ = url.PathUnescape(v)
		}
		return v
	}
	for next := uri; ; pages++ {
		require.Less(s.t, pages, 5000)
		body := s.want(200, "", "GET", next, "").body
		require.Less(s.t, len(body), most)
		var doc struct {
			NextMarker, NextKeyMarker, NextVersionIdMarker, NextContinuationToken string
			IsTruncated                                                           bool
			Contents, Version                                                     []struct{ Key string }
			CommonPrefixes                                                        []struct{ Prefix string }
		}
		require.NoError(s.t, xml.Unmarshal([]byte(body), &doc))
		last := ""
		for _, item := range append(doc.Contents, doc.Version...) {
			last = text(item.Key)
			found = append(found, last)
		}
		for _, item := range doc.CommonPrefixes {
			found = append(found, text(item.Prefix))
		}
		if !doc.IsTruncated {
			return found, pages + 1
		}
		set := func(name, value string) { next = uri + "&" + name + "=" + url.QueryEscape(value) }
		switch {
		case doc.NextContinuationToken != "":
			set("continuation-token", doc.NextContinuationToken)
		case doc.NextKeyMarker != "":
			set("key-marker", text(doc.NextKeyMarker))
		case doc.NextMarker != "":
			set("marker", text(doc.NextMarker))
		default:
			set("marker", last)
		}
	}
}

// TestListingsOverEmptyRangesAreComplete: over very many empty ranges pages are short, or
// empty, and what they show together is all there is, whichever the form.
func TestListingsOverEmptyRangesAreComplete(t *testing.T) {
	r := seed.New(t)
	s := limited(t, 1, s3api.Options{})
	letters := []rune("a/b\uE000\uD7FF\x00ü\U0010FFFF")
	word := func() string {
		w := ""
		for range 1 + r.IntN(5) {
			w += string(letters[r.IntN(len(letters))])
		}
		return w
	}
	var cuts [][]byte
	for i := range 1000 {
		cuts = append(cuts, []byte(word()))
		if i < 400 {
			cuts = append(cuts, fmt.Appendf(nil, "b/%05d", i))
		}
	}
	require.NoError(t, s.buckets.CreateBucket(t.Context(), "abc", cuts...))
	empty := 0
	for round := range 3 {
		for _, query := range []string{"", "versions", "delimiter=/", "versions&delimiter=/", "list-type=2",
			"delimiter=a", "prefix=b/", "prefix=b/&delimiter=0", "list-type=2&delimiter=/"} {
			query += "&encoding-type=url"
			var want []string
			q := listing.Query{}
			if strings.Contains(query, "prefix=b/") {
				q.Prefix = []byte("b/")
			}
			if _, rest, found := strings.Cut(query, "delimiter="); found {
				q.Delimiter = []byte(rest[:1])
			}
			prefixes := map[string]int{}
			for item, err := range s.buckets.Bucket("abc").All(t.Context(), q) {
				require.NoError(t, err)
				want = append(want, string(item.Key))
			}
			got, pages := s.listAll("/abc?"+query, 2<<20)
			require.ElementsMatch(t, want, got, "round %d: %s", round, query)
			for _, key := range got {
				prefixes[key]++
				require.Equal(t, 1, prefixes[key], "%q twice", key)
			}
			if len(got) == 0 && pages > 1 {
				empty++
			}
		}
		for range 5 * (round + 1) {
			at := cuts[r.IntN(len(cuts))] // the first key of a range
			require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), at, []byte("v")))
			require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte(word()), []byte("v")))
		}
	}
	require.Positive(t, empty, "pages without items, and no end")
}

// TestMarkers: a marker goes on at a key, or behind it.
func TestMarkers(t *testing.T) {
	for _, c := range []struct {
		key, want string
		past      bool
	}{
		{"abc", "abc", true}, {"abc", "abb\U0010FFFF", false}, {"ab\x00", "ab", false},
		{"\uE000", "\uD7FF\U0010FFFF", false}, {"\uE001", "\uE000\U0010FFFF", false},
		{"a\xFF", "a\xFE\xFF", false}, {"", "", false}, {"ü", "û\U0010FFFF", false},
	} {
		got := s3api.MarkerBelow([]byte(c.key), c.past)
		require.Equal(t, c.want, string(got), "%q", c.key)
		require.LessOrEqual(t, string(got), c.key)
	}
}

// TestReadsEndWhenTheirClientLeaves: a while after it, as it may have ended only its
// sending side. A write goes on.
func TestReadsEndWhenTheirClientLeaves(t *testing.T) {
	for call, ends := range map[string]bool{"GET /abc?list-type=2": true, "GET /abc?versions": true,
		"HEAD /abc": false} {
		synctest.Test(t, func(t *testing.T) {
			f := &faulty{wait: make(chan struct{}), began: make(chan struct{}, 1)}
			h, err := s3api.New(f, s3api.Options{RequestTimeout: time.Hour})
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			method, uri, _ := strings.Cut(call, " ")
			began := time.Now()
			go func() {
				<-f.began
				leave()
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, uri, nil).WithContext(ctx))
			took := time.Since(began)
			require.Equal(t, ends, took < 2*time.Second, "%s took %v", call, took)
			require.GreaterOrEqual(t, took, time.Second)
		})
	}
}

// deadlines records the deadlines that are set for a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// TestDeadlinesOfLargeTransfers: with a minimum rate, bodies of more than 64 KiB and answers of
// more than 4 KiB have deadlines of their own.
func TestDeadlinesOfLargeTransfers(t *testing.T) {
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "abc"))
	h, err := s3api.New(s3api.Over(c), s3api.Options{MinRate: 1 << 10, MaxBodyBytes: 1 << 20})
	require.NoError(t, err)
	do := func(method, body string) *deadlines {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(d, httptest.NewRequest(method, "/abc/k", strings.NewReader(body)))
		return d
	}
	for size, large := range map[int]bool{64 << 10: false, 64<<10 + 1: true} {
		require.Equal(t, large, !do("PUT", strings.Repeat("v", size)).read.IsZero(), "a body of %d bytes", size)
	}
	for size, large := range map[int]bool{4 << 10: false, 4<<10 + 1: true} {
		require.Zero(t, do("PUT", strings.Repeat("v", size)).write)
		got := do("GET", "")
		require.Equal(t, size, got.Body.Len())
		require.Equal(t, large, !got.write.IsZero(), "an answer of %d bytes", size)
	}
}

// TestSlowBodiesAreEnded: with a minimum rate, at the time that it asks for.
func TestSlowBodiesAreEnded(t *testing.T) {
	var log bytes.Buffer
	s := limited(t, 0, s3api.Options{MinRate: 1 << 20, BodyTimeout: 50 * time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	s.want(200, "", "PUT", "/abc", "")
	conn := s.open("POST /abc?delete HTTP/1.1\r\nHost: h\r\nContent-MD5: " + md5Of("") +
		"\r\nContent-Length: 100000\r\n\r\n<Delete>")
	answer, err := io.ReadAll(conn)
	require.NoError(t, err, "the connection is closed")
	require.Contains(t, string(answer), "400 Bad Request")
	require.Contains(t, string(answer), "<Code>RequestTimeout</Code>")
	s.heldIs("nothing", nothing)
	s.stop()
	require.Contains(t, log.String(), "i/o timeout")
}

// TestDeleteDocumentsAreReadUpToWhatIsWrong: and what has no place in one takes no memory.
func TestDeleteDocumentsAreReadUpToWhatIsWrong(t *testing.T) {
	object := "<Object><Key>k</Key></Object>"
	long := strings.Repeat("k", 70<<10)
	for name, c := range map[string]struct{ doc, code string }{
		"others": {"<Delete>" + strings.Repeat("<a/>", 2<<20) + "</Delete>", "MalformedXML"},
		"deep":   {strings.Repeat("<Delete>", 1<<20), "MalformedXML"},
		"many":   {"<Delete>" + strings.Repeat(object, 200_000) + "</Delete>", "MalformedXML"},
		"conditions": {"<Delete><Object><Key>k</Key>" + strings.Repeat("<ETag>e</ETag>",
			1<<19) + "</Object></Delete>", "MalformedXML"},
		"sizes": {"<Delete><Object><Key>k</Key>" + strings.Repeat("<Size>1</Size>",
			1<<19) + "</Object></Delete>", "MalformedXML"},
		"long ETags": {"<Delete>" + strings.Repeat("<Object><Key>k</Key><ETag>"+long[:60<<10]+"</ETag></Object>",
			100) + "</Delete>", "MalformedXML"},
		"in a key": {"<Delete><Object><Key>" + strings.Repeat("<a/>", 2<<20) + "</Key></Object></Delete>",
			"MalformedXML"},
		"a long tag": {"<Delete " + strings.Repeat("a='' ", 1<<20) + ">" + object + "</Delete>", "MalformedXML"},
		"a long key": {"<Delete><Object><Key>" + long + "</Key></Object></Delete>", "MalformedXML"},
		"long pieces": {"<Delete><Object><Key>" + strings.Repeat("kkk<!-- -->", 1<<19) + "</Key></Object></Delete>",
			"MalformedXML"},
		"long keys": {"<Delete>" + strings.Repeat("<Object><Key>"+long[:60<<10]+"</Key></Object>",
			100) + "</Delete>", "MalformedXML"},
		"no end":       {"<Delete>" + object, "MalformedXML"},
		"another root": {"<Remove>" + object + "</Remove>", "MalformedXML"},
		"no objects":   {"<Delete><Quiet>true</Quiet></Delete>", "MalformedXML"},
		"no truth":     {"<Delete><Quiet>perhaps</Quiet>" + object + "</Delete>", "MalformedXML"},
	} {
		var before, after runtime.MemStats
		doc := []byte(c.doc)
		runtime.ReadMemStats(&before)
		_, code := s3api.ParseDelete(doc)
		runtime.ReadMemStats(&after)
		require.Equal(t, c.code, code, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), name)
	}
}

// TestCutsAreLimited: those of a request, and those of a key within an hour.
func TestCutsAreLimited(t *testing.T) {
	var now atomic.Int64
	s := serveKeys(t, s3api.Options{MaxCuts: 10,
		Now: func() time.Time { return time.Now().Add(time.Duration(now.Load())) }})
	cuts := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("%05d\n", i)
		}
		return text
	}
	create := func(key string, n int) answer {
		now.Add(1)
		return s.as(key).do("PUT", fmt.Sprintf("/b-%d?evenkeel-cuts", now.Load()), cuts(n))
	}
	a := create("ADMIN", 11)
	require.Equal(t, 400, a.status)
	require.Equal(t, "InvalidArgument", a.code())
	require.Contains(t, a.body, "more than 10 cuts")
	for range 10 {
		require.Equal(t, 200, create("ADMIN", 10).status)
	}
	a = create("ADMIN", 10)
	require.Equal(t, 503, a.status)
	require.Equal(t, "SlowDown", a.code())
	require.Contains(t, []string{"360", "361"}, a.header.Get("Retry-After"))
	require.Equal(t, 200, create("ADMIN", 0).status)
	require.Equal(t, 403, create("PHOTOS", 10).status, "another key, another count")
	now.Add(int64(6*time.Minute + time.Second))
	require.Equal(t, 200, create("ADMIN", 10).status)
	require.Equal(t, 503, create("ADMIN", 10).status)
}

// TestFailuresGiveBackWhatTheyHold: whatever fails, nothing is held when it is answered.
func TestFailuresGiveBackWhatTheyHold(t *testing.T) {
	for _, err := range []error{nil, errors.New("fire"), store.Errorf(store.Unavailable, "away")} {
		s := serve(t, &faulty{err: err, pages: make([]listing.Page, 3)}, s3api.Options{})
		for _, w := range eachRequest() {
			method, uri, _ := strings.Cut(w.call, " ")
			if uri != "/" {
				s.do(method, uri, w.body, w.headers...)
			}
		}
		s.heldIs("nothing", nothing)
	}
	_, err := s3api.New(&faulty{}, s3api.Options{MemoryBytes: 1 << 20})
	require.ErrorContains(t, err, "at least")
}
