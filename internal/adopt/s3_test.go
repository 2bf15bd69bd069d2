package adopt_test

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// shop is an S3 server with one bucket, "from", that can be bad in many ways.
type shop struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]string // the ETags
	// before answers a request instead, if it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool
	// listed changes what is listed.
	listed func(keys []string) []string
}

type listedObject struct {
	Key, ETag, StorageClass string
	Size                    int
	LastModified            time.Time
}

var shopTime = time.Date(2026, 11, 1, 10, 0, 0, 123e6, time.UTC)

func openShop(t *testing.T, keys ...string) *shop {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "us-east-1")
	s := &shop{keys: map[string]string{}}
	for _, key := range keys {
		s.keys[key] = "first"
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *shop) source(t *testing.T, change func(*adopt.S3)) adopt.Source {
	t.Helper()
	at := adopt.S3{Endpoint: s.URL, Bucket: "from"}
	if change != nil {
		change(&at)
	}
	source, err := adopt.FromS3(at)
	require.NoError(t, err)
	return source
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.before != nil && s.before(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if r.Method == http.MethodHead {
		etag, found := s.keys[strings.TrimPrefix(r.URL.Path, "/from/")]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", strconv.Quote(etag))
		w.Header().Set("Last-Modified", shopTime.Format(http.TimeFormat))
		w.Header().Set("Content-Type", "text/x")
		w.Header().Set("X-Amz-Meta-Of", etag)
		return
	}
	sorted := slices.Sorted(maps.Keys(s.keys))
	after := cmp.Or(q.Get("continuation-token"), q.Get("start-after"))
	keys := slices.DeleteFunc(sorted, func(key string) bool {
		return key <= after || !strings.HasPrefix(key, q.Get("prefix"))
	})
	most, _ := strconv.Atoi(q.Get("max-keys"))
	truncated := len(keys) > most
	keys = keys[:min(most, len(keys))]
	if s.listed != nil {
		keys = s.listed(keys)
	}
	answer := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []listedObject
	}{EncodingType: "url", IsTruncated: truncated}
	for _, key := range keys {
		answer.NextContinuationToken = key
		answer.Contents = append(answer.Contents, listedObject{
			url.QueryEscape(key), strconv.Quote(s.keys[key]), "GLACIER", len(key), shopTime,
		})
	}
	_ = xml.NewEncoder(w).Encode(answer)
}

func (s *shop) put(key, etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] = etag; etag == "" {
		delete(s.keys, key)
	}
}

// fails answers with an error of S3.
func fails(status int, code, more string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>why</Message>%s</Error>", code, more)
		return true
	}
}

func init() {
	minio.DefaultRetryUnit, minio.DefaultRetryCap = time.Millisecond, 5*time.Millisecond // pauses of the client
}

// TestPagesOfS3: pages and gets of random spans are those of a sorted list, whatever the keys.
func TestPagesOfS3(t *testing.T) {
	ctx, random := t.Context(), seed.New(t)
	letters := []string{"a", "b", "/", " ", "+", "%", "&", "ä", "\U0001F600", "\x01", "~", "aa"}
	keys := map[string]bool{}
	for range 300 {
		key := ""
		for range 1 + random.IntN(4) {
			key += letters[random.IntN(len(letters))]
		}
		keys[key] = true
	}
	s := openShop(t, slices.Collect(maps.Keys(keys))...)
	sorted := slices.Sorted(maps.Keys(keys))
	pick := func() []byte {
		if random.IntN(4) == 0 {
			return nil
		}
		return []byte(sorted[random.IntN(len(sorted))])
	}
	for _, prefix := range []string{"", "a", "/"} {
		source := s.source(t, func(at *adopt.S3) { at.Prefix, at.Metadata = prefix, prefix != "" })
		for range 100 {
			span := adopt.Span{From: pick(), To: pick()}
			span.After = span.From != nil && random.IntN(2) == 0
			limit := 1 + random.IntN(400)
			rows, err := source.Page(ctx, 0, span, limit, true)
			require.NoError(t, err)
			var want, got []string
			for _, key := range sorted {
				if strings.HasPrefix(key, prefix) && (key > string(span.From) || key == string(span.From) && !span.After) &&
					(span.To == nil || key < string(span.To)) && len(want) < limit {
					want = append(want, key)
				}
			}
			for _, r := range rows {
				got = append(got, string(r.Key))
			}
			require.Equal(t, want, got, "%q %+v %d", prefix, span, limit)
		}
		for _, key := range append(sorted, "no", "", "\xff", strings.Repeat("a", 2000)) {
			_, found, err := source.Get(ctx, 0, []byte(key))
			require.NoError(t, err)
			require.Equal(t, keys[key] && strings.HasPrefix(key, prefix), found, "%q", key)
		}
	}
}

// TestValuesOfS3: the value is what docs/adopt.md says, the same in a page and by itself.
func TestValuesOfS3(t *testing.T) {
	ctx := t.Context()
	s := openShop(t, "a/b")
	for metadata, want := range map[bool]string{
		false: `{"size":3,"etag":"first","modified":"2026-11-01T10:00:00.123Z","storage_class":"GLACIER"}`,
		true: `{"size":3,"etag":"first","modified":"2026-11-01T10:00:00.123Z","storage_class":"GLACIER",` +
			`"content_type":"text/x","metadata":{"of":"first"}}`,
	} {
		source := s.source(t, func(at *adopt.S3) { at.Metadata = metadata })
		rows, err := source.Page(ctx, 0, adopt.Span{}, 10, true)
		require.NoError(t, err)
		row, found, err := source.Get(ctx, 0, []byte("a/b"))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, []adopt.Row{row}, rows)
		require.Equal(t, want, string(row.Value))
		require.Equal(t, store.Timestamp(shopTime.UnixMicro()), row.Time)
	}
}

// TestMetadataThatChange: what is replaced or deleted between the listing and the question for its metadata is listed
// again, or left out; a page is full nevertheless.
func TestMetadataThatChange(t *testing.T) {
	ctx := t.Context()
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	s := openShop(t, keys...)
	var once sync.Once
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			once.Do(func() {
				s.put("k03", "second")
				s.put("k05", "")
				s.put("k09", "")
			})
		}
		return false
	}
	source := s.source(t, func(at *adopt.S3) { at.Metadata = true })
	rows, err := source.Page(ctx, 0, adopt.Span{}, 10, true)
	require.NoError(t, err)
	for i, want := range []int{0, 1, 2, 3, 4, 6, 7, 8, 10, 11} {
		require.Equal(t, keys[want], string(rows[i].Key))
		var value struct {
			ETag     string
			Metadata map[string]string
		}
		require.NoError(t, json.Unmarshal(rows[i].Value, &value))
		require.Equal(t, value.ETag, value.Metadata["of"])
	}
}

// TestBadS3: what can't be adopted is refused at once, with why; what may pass is retried, within bounds.
func TestBadS3(t *testing.T) {
	for name, c := range map[string]struct {
		before func(http.ResponseWriter, *http.Request) bool
		listed func([]string) []string
		kind   store.Kind
		text   string
	}{
		"a key that may not list": {
			before: fails(403, "AccessDenied", ""), kind: store.InvalidArgument,
			text: "the access key is wrong, or may not list",
		},
		"no such bucket": {
			before: fails(404, "NoSuchBucket", ""), kind: store.InvalidArgument, text: "there is no such bucket",
		},
		"another region": {
			before: fails(400, "AuthorizationHeaderMalformed", "<Region>mars-1</Region>"), kind: store.InvalidArgument,
			text: "by --region mars-1",
		},
		"a bucket that is elsewhere": {
			before: fails(301, "PermanentRedirect", ""), kind: store.InvalidArgument, text: "by --region",
		},
		"a region that is none": {
			before: fails(400, "InvalidRegion", "<Region>mars-2</Region>"), kind: store.InvalidArgument,
			text: "by --region mars-2",
		},
		"a region that may not": {
			before: fails(400, "IllegalLocationConstraintException", ""), kind: store.InvalidArgument,
			text: "give its region by --region: ",
		},
		"moved": {before: fails(301, "Moved", ""), kind: store.InvalidArgument, text: "by --region"},
		"no such path": {
			before: fails(404, "Other", ""), kind: store.InvalidArgument, text: "there is no such bucket",
		},
		"a wrong clock": {
			before: fails(403, "RequestTimeTooSkewed", ""), kind: store.InvalidArgument,
			text: "is wrong: RequestTimeTooSkewed",
		},
		"no access key": {
			before: fails(401, "Other", ""), kind: store.InvalidArgument,
			text: "the access key is wrong, or may not list this bucket: Other: why (401)",
		},
		"a bad request": {
			before: fails(400, "Other", ""), kind: store.InvalidArgument,
			text: "the server does not take the request: Other: why (400)",
		},
		"the last of the client's mistakes": {
			before: fails(499, "Other", ""), kind: store.InvalidArgument, text: "the server does not take the request",
		},
		"too many requests":     {before: fails(429, "Other", ""), kind: store.Unavailable, text: "Other: why (429)"},
		"too slow a request":    {before: fails(408, "Other", ""), kind: store.Unavailable, text: "Other: why (408)"},
		"a server that fails":   {before: fails(500, "Other", ""), kind: store.Unavailable, text: "Other: why (500)"},
		"a server that cannot":  {before: fails(501, "Other", ""), kind: store.Unavailable, text: "(501)"},
		"a server that is away": {before: fails(503, "SlowDown", ""), kind: store.Unavailable, text: "SlowDown"},
		"another order": {
			listed: func(keys []string) []string { slices.Reverse(keys); return keys }, kind: store.Corrupt,
			text: `lists "c" after "d"`,
		},
		"a key twice": {
			listed: func(keys []string) []string { return append(keys[:2:2], keys[1:]...) }, kind: store.Corrupt,
			text: `lists "b" after "b"`,
		},
		"start-after is ignored": {
			listed: func(keys []string) []string { return []string{"a", "b"} }, kind: store.Corrupt,
			text: `lists "a" after "a"`,
		},
		"the prefix is ignored": {
			listed: func(keys []string) []string { return []string{"z"} }, kind: store.Corrupt, text: "does not begin with",
		},
		"a listing that never ends": {
			before: func(w http.ResponseWriter, _ *http.Request) bool {
				fmt.Fprint(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same"+
					"</NextContinuationToken></ListBucketResult>")
				return true
			},
			kind: store.Corrupt, text: "does not end",
		},
		"no S3 at all": {
			before: func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, "<html></html>"); return true },
			kind:   store.Unavailable, text: "is the endpoint right?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, "a", "b", "c", "d")
			s.before, s.listed = c.before, c.listed
			source := s.source(t, func(at *adopt.S3) {
				if name == "the prefix is ignored" {
					at.Prefix = "a"
				}
			})
			span := adopt.Span{}
			if name == "start-after is ignored" {
				span = adopt.Span{From: []byte("a"), After: true}
			}
			_, err := source.Page(t.Context(), 0, span, 10, true)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "(0)", "a status that there is not")
		})
	}
	for _, endpoint := range []string{
		"", "s3.example.com", "ftp://x", "http://x/path", "http://u:secret@x", "http://x?y",
	} {
		_, err := adopt.FromS3(adopt.S3{Endpoint: endpoint})
		require.ErrorIs(t, err, store.InvalidArgument, endpoint)
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestS3GoesAway: a server that fails now and then, or cuts its answers, is only slower; one that is away for good ends
// the copy, and what was done counts when it is back. Keys above the limit are counted.
func TestS3GoesAway(t *testing.T) {
	ctx, random := t.Context(), seed.New(t)
	long := "k0000" + strings.Repeat("x", 1030)
	keys := []string{long}
	for i := range 3000 {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	s := openShop(t, keys...)
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	source := s.source(t, nil)
	sample, err := adopt.TakeSample(ctx, source, 2, wait.NewPacer(0))
	require.NoError(t, err)
	require.EqualValues(t, len(keys), sample.Rows())
	file := filepath.Join(t.TempDir(), "done.json")
	done := adopt.NewDone("task", 1, sample.Streams(3), sample.Rows())
	var mu sync.Mutex
	var requests, away atomic.Int64
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if n := requests.Add(1); away.Load() > 0 && n >= away.Load() {
			panic(http.ErrAbortHandler) // the connection ends
		}
		mu.Lock()
		defer mu.Unlock()
		switch random.IntN(8) {
		case 0:
			return fails(503, "SlowDown", "")(w, r)
		case 1:
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>k")
			return true
		}
		return false
	}
	away.Store(requests.Load() + 3)
	var refused []string
	run := func() error {
		a := adopt.New(adopt.Options{
			Source: source, Bucket: c.Bucket("b"), Pace: wait.NewPacer(0), Parallel: 2, Spans: adopt.Spans(done.Cuts()),
			Report: func(f adopt.Finding) { refused = append(refused, f.Fault) },
		})
		defer func() { require.NoError(t, done.Save(file)) }()
		return a.Copy(ctx, done)
	}
	err = run()
	require.ErrorIs(t, err, store.Unavailable)
	require.NotContains(t, err.Error(), "(0)", "a status that there is not")
	away.Store(0)
	done, err = adopt.LoadDone(file, "task", 1)
	require.NoError(t, err)
	before := requests.Load()
	require.NoError(t, run())
	t.Logf("%d requests, then %d", before, requests.Load()-before)
	require.Equal(t, []string{string(adopt.LongKey)}, refused)
	status := done.Status()
	require.Equal(t, []int64{int64(len(keys)), 1}, []int64{status.Read, status.Refused})
	require.Equal(t, long[:256], string(status.Refusals[0].Key))
	var got []string
	for item, err := range c.Bucket("b").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		got = append(got, string(item.Key))
	}
	require.Equal(t, keys[1:], got)

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = source.Page(canceled, 0, adopt.Span{}, 10, true)
	require.ErrorIs(t, err, context.Canceled)
}

// TestRequestsForMetadataThatFail: the error says what the access key needs, and nothing is copied without its
// metadata.
func TestRequestsForMetadataThatFail(t *testing.T) {
	for _, c := range []struct {
		before func(s *shop, heads int, w http.ResponseWriter, r *http.Request) bool
		kind   store.Kind
		text   string
	}{
		{func(_ *shop, _ int, w http.ResponseWriter, r *http.Request) bool {
			return fails(403, "AccessDenied", "")(w, r)
		},
			store.InvalidArgument, "may not list this bucket or read its objects, which --metadata needs"},
		{func(_ *shop, _ int, w http.ResponseWriter, r *http.Request) bool {
			return fails(500, "InternalError", "")(w, r)
		},
			store.Unavailable, "500"},
		{func(s *shop, n int, _ http.ResponseWriter, _ *http.Request) bool {
			s.put("k5", fmt.Sprint(n))
			return false
		},
			store.Unavailable, `"k5" are not those of its listing: it changes all the time`},
	} {
		s := openShop(t, "k1", "k5", "k9")
		var heads atomic.Int64
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/k5") &&
				c.before(s, int(heads.Add(1)), w, r)
		}
		source := s.source(t, func(at *adopt.S3) { at.Metadata = true })
		for _, get := range []bool{false, true} {
			var err error
			if heads.Store(0); get {
				_, _, err = source.Get(t.Context(), 0, []byte("k5"))
			} else {
				_, err = source.Page(t.Context(), 0, adopt.Span{}, 10, true)
			}
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
		}
		_, err := source.Page(t.Context(), 0, adopt.Span{From: []byte("k5")}, 10, true)
		require.ErrorIs(t, err, c.kind, "the first key is read alone")
		rows, err := source.Page(t.Context(), 0, adopt.Span{}, 10, false)
		require.NoError(t, err, "keys alone need no metadata")
		require.Len(t, rows, 3)
		require.Empty(t, rows[0].Value)
	}
}

// TestObjectsThatGoWhileTheyAreRead: an object that is deleted between any two requests for it is not there.
func TestObjectsThatGoWhileTheyAreRead(t *testing.T) {
	for _, goes := range []int{1, 2, 3} { // the listing, the metadata, the listing again
		s := openShop(t, "k5", "k55")
		source := s.source(t, func(at *adopt.S3) { at.Metadata = true })
		requests := 0
		s.before = func(_ http.ResponseWriter, r *http.Request) bool {
			switch requests++; {
			case requests == goes:
				s.put("k5", "")
			case requests == 2:
				s.put("k5", "another")
			}
			return false
		}
		_, found, err := source.Get(t.Context(), 0, []byte("k5"))
		require.NoError(t, err)
		require.False(t, found, goes)
		require.Equal(t, goes, requests)
	}
}

// TestObjectsThatWereReplaced: the metadata are those of the object that is listed, also if only its time is another.
func TestObjectsThatWereReplaced(t *testing.T) {
	s := openShop(t, "k5")
	source := s.source(t, func(at *adopt.S3) { at.Metadata = true })
	lists, heads := 0, 0
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodHead {
			lists++
			return false
		}
		if heads++; heads == 1 {
			w.Header().Set("ETag", `"first"`)
			w.Header().Set("Last-Modified", shopTime.Add(time.Second).Format(http.TimeFormat))
			return true
		}
		return false
	}
	row, found, err := source.Get(t.Context(), 0, []byte("k5"))
	require.NoError(t, err)
	require.True(t, found)
	require.Contains(t, string(row.Value), `"metadata":{"of":"first"}`)
	require.Equal(t, []int{2, 2}, []int{lists, heads})
}

// TestLongKeysOfS3: an object whose key is longer than S3 allows is listed, refused, and never asked for.
func TestLongKeysOfS3(t *testing.T) {
	longest := strings.Repeat("a", 1024)
	s := openShop(t, longest, longest+"b")
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.String(), longest+"b") {
			t.Error("no request may have the key")
		}
		return false
	}
	for _, metadata := range []bool{false, true} {
		source := s.source(t, func(at *adopt.S3) { at.Metadata = metadata })
		rows, err := source.Page(t.Context(), 0, adopt.Span{}, 10, true)
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Empty(t, rows[0].Refused)
		require.Equal(t, adopt.LongKey, rows[1].Refused)
		_, found, err := source.Get(t.Context(), 0, []byte(longest))
		require.NoError(t, err)
		require.True(t, found)
		_, found, err = source.Get(t.Context(), 0, []byte(longest+"b"))
		require.NoError(t, err)
		require.False(t, found)
	}
}

// TestEmptyAnswersOfS3: a server may answer with pages that have no key, and say that there are more, up to a bound.
func TestEmptyAnswersOfS3(t *testing.T) {
	for _, c := range []struct {
		empty int
		err   error
	}{{99, nil}, {299, nil}, {300, store.Corrupt}} {
		s := openShop(t, "k1", "k2")
		source := s.source(t, nil)
		requests := 0
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if requests++; requests <= c.empty {
				fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%s"+
					"</NextContinuationToken></ListBucketResult>", "k0")
				return true
			}
			return false
		}
		rows, err := source.Page(t.Context(), 0, adopt.Span{}, 10, true)
		require.ErrorIs(t, err, c.err, c.empty)
		if c.err == nil {
			require.Len(t, rows, 2)
		}
	}
}

// TestEndpointsOfS3: what an endpoint may be; credentials and the region come from the options, and then from the
// environment.
func TestEndpointsOfS3(t *testing.T) {
	s := openShop(t, "k")
	var authorization atomic.Value
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		authorization.Store(r.Header.Get("Authorization"))
		return false
	}
	for _, endpoint := range []string{s.URL, s.URL + "/"} {
		source := s.source(t, func(at *adopt.S3) { at.Endpoint = endpoint })
		_, err := source.Page(t.Context(), 0, adopt.Span{}, 1, true)
		require.NoError(t, err)
		require.Contains(t, authorization.Load(), "Credential=id/")
		require.Contains(t, authorization.Load(), "/us-east-1/s3/")
	}
	source := s.source(t, func(at *adopt.S3) { at.AccessKey, at.SecretKey, at.Region = "other", "secret", "mars-1" })
	_, err := source.Page(t.Context(), 0, adopt.Span{}, 1, true)
	require.NoError(t, err)
	require.Contains(t, authorization.Load(), "Credential=other/")
	require.Contains(t, authorization.Load(), "/mars-1/s3/")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "mars-2")
	source = s.source(t, nil)
	_, err = source.Page(t.Context(), 0, adopt.Span{}, 1, true)
	require.NoError(t, err)
	require.Contains(t, authorization.Load(), "/mars-2/s3/")
	for _, endpoint := range []string{"http://x#y", "http://x/?", "https://", "http://[", "x:9000"} {
		_, err := adopt.FromS3(adopt.S3{Endpoint: endpoint})
		require.Equal(t, endpoint != "http://x/?", err != nil, endpoint)
	}
	require.True(t, source.Same([]byte("x"), []byte("x")))
	require.False(t, source.Same([]byte("x"), []byte("y")))
	require.Equal(t, 1, source.Parts())
}
