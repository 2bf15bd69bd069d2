package s3api_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Each call of the store fails in turn, under every request. An answer below 500 is the
// one that comes without a failure, to the byte, and what it says has happened; after
// another one the request may be sent again, and then that is so.

// wanted is one request: method and target, a body, and headers as pairs.
type wanted struct {
	call, body string
	headers    []string
}

// eachRequest are requests of every implemented operation, on what stock makes.
func eachRequest() (all []wanted) {
	add := func(call, body string, headers ...string) { all = append(all, wanted{call, body, headers}) }
	deletes := func(quiet bool) {
		doc := "<Delete>"
		for _, k := range []string{"a/1", "none", "e/2", strings.Repeat("k", 1025)} {
			doc += "<Object><Key>" + k + "</Key></Object>"
		}
		if quiet {
			doc += "<Quiet>true</Quiet>"
		}
		doc += "</Delete>"
		sum := md5.Sum([]byte(doc))
		add("POST /full?delete", doc, "Content-MD5", b64(sum[:]))
	}
	for _, bucket := range []string{"full", "empty", "none"} {
		add("PUT /"+bucket, "")
		add("DELETE /"+bucket, "")
		add("DELETE /"+bucket+"?lifecycle", "")
		add("DELETE /"+bucket+"?cors", "")
		add("OPTIONS /"+bucket, "", "Origin", "https://a.example", "Access-Control-Request-Method", "GET")
		for _, query := range []string{
			"", "?location", "?versioning", "?lifecycle", "?cors", "?acl", "?versions&max-keys=2", "?list-type=2",
			"?list-type=2&max-keys=0",
			"?list-type=2&max-keys=2&fetch-owner=true",
			"?list-type=2&delimiter=/", "?delimiter=/&max-keys=1&prefix=e", "?marker=a/1&max-keys=2",
			"?evenkeel-splits=3",
		} {
			add("GET /"+bucket+query, "")
		}
		add("POST /"+bucket+"?evenkeel-delete-range&prefix=a/", "")
		add("POST /"+bucket+"?evenkeel-delete-range&evenkeel-from=a/2&evenkeel-to=e/2", "")
		add("HEAD /"+bucket, "")
		add("PUT /"+bucket+"?acl", "", "x-amz-acl", "private")
	}
	add("GET /", "")
	add("GET /?max-buckets=1", "")
	for _, key := range []string{"a/1", "none"} {
		add("GET /full/"+key, "")
		add("GET /full/"+key, "", "Range", "bytes=1-2")
		add("HEAD /full/"+key, "")
		add("GET /full/"+key+"?acl", "")
		add("PUT /full/"+key+"?acl", "", "x-amz-acl", "private")
		add("PUT /full/"+key, "new")
		add("PUT /full/"+key, "new", "If-None-Match", "*")
		add("PUT /full/"+key, "new", "If-Match", "*")
		add("DELETE /full/"+key, "")
		add("DELETE /full/"+key, "", "If-Match", "*")
		add("PUT /full/copy", "", "x-amz-copy-source", "/full/"+key)
		add("PUT /full/e/2", "", "x-amz-copy-source", "/full/"+key, "If-Match", "*")
		add("PUT /none/copy", "", "x-amz-copy-source", "/full/"+key)
		add("PUT /full/copy", "", "x-amz-copy-source", "/none/"+key)
		add("PUT /full/"+key, "", "x-amz-copy-source", "/full/"+key, "x-amz-metadata-directive", "REPLACE",
			"x-amz-meta-a",
			"b")
	}
	deletes(false)
	deletes(true)
	return all
}

// stock fills a store: a bucket with two ranges, and one without entries.
func stock(t *testing.T, s store.Store) {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "full", []byte("d")))
	require.NoError(t, c.CreateBucket(t.Context(), "empty", []byte("d")))
	for _, key := range []string{"a/1", "a/2", "e/1", "e/2", "f"} {
		o := s3api.Object{Modified: time.Now(), Body: []byte("body of " + key), Size: int64(len("body of " + key)),
			ETag: "etag of " + key}
		require.NoError(t, c.Bucket("full").Put(t.Context(), []byte(key), o.AppendRecord(nil)))
	}
}

// everything is all that a store shows.
func everything(t *testing.T, s store.Store) string {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var out strings.Builder
	for info, err := range c.Buckets(t.Context(), "", "") {
		require.NoError(t, err)
		fmt.Fprintln(&out, info.Name)
		for e, err := range c.Bucket(info.Name).All(t.Context(), listing.Query{}) {
			if errors.Is(err, listing.ErrNoSuchBucket) { // deleted, and on the list yet
				out.WriteString("  deleted\n")
				break
			}
			require.NoError(t, err)
			fmt.Fprintf(&out, "  %s = %q\n", e.Key, e.Value)
		}
	}
	return out.String()
}

var tokens = regexp.MustCompile("(<NextContinuationToken>)[^<]*")

// send is what a handler answers: status, headers but for ids, and body.
func (w *wanted) send(ctx context.Context, h http.Handler) (status int, text string) {
	method, target, _ := strings.Cut(w.call, " ")
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(w.body))
	for i := 0; i < len(w.headers); i += 2 {
		r.Header.Set(w.headers[i], w.headers[i+1])
	}
	a := httptest.NewRecorder()
	h.ServeHTTP(a, r)
	id := a.Header().Get("X-Amz-Request-Id")
	var lines []string
	for name, values := range a.Header() {
		if !slices.Contains([]string{"X-Amz-Request-Id", "X-Amz-Id-2"}, name) {
			lines = append(lines, fmt.Sprint(name, values))
		}
	}
	slices.Sort(lines)
	body := strings.NewReplacer(id, "", a.Header().Get("X-Amz-Id-2"), "").Replace(a.Body.String())
	body = tokens.ReplaceAllString(body, "$1") // of a bucket that is made anew each time
	return a.Code, fmt.Sprintf("%d\n%s\n%s", a.Code, strings.Join(lines, "\n"), body)
}

// attempt sends a request to a server over a store in which a case fails, and then
// again; and says what there is after each.
func (w *wanted) attempt(t *testing.T, fail faulttest.Case) (status int, answers, after [2]string,
	calls map[faultstore.Op]int) {
	inner := memstore.New()
	s, faults := fail.Store(inner)
	defer func() { require.NoError(t, s.Close()) }()
	stock(t, inner)
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	start := time.Now() // no answer depends on how long something took
	h, err := s3api.New(s3api.Over(c), s3api.Options{SoleWriter: true, Now: func() time.Time { return start }})
	require.NoError(t, err)
	faults.Enable(true)
	status, answers[0] = w.send(t.Context(), h)
	calls = faulttest.Calls(faults)
	faults.Enable(false)
	require.NoError(t, faults.Flush(t.Context()))
	after[0] = everything(t, inner)
	_, answers[1] = w.send(t.Context(), h)
	after[1] = everything(t, inner)
	return status, answers, after, calls
}

func TestEachCallFails(t *testing.T) {
	for _, w := range eachRequest() {
		t.Run(fmt.Sprint(w.call, w.headers), func(t *testing.T) {
			var want, then [2]string
			var calls map[faultstore.Op]int
			synctest.Test(t, func(t *testing.T) { _, want, then, calls = w.attempt(t, faulttest.Case{}) })
			faulttest.Each(t, calls, func(fail faulttest.Case) {
				synctest.Test(t, func(t *testing.T) {
					status, got, after, _ := w.attempt(t, fail)
					if status < 500 {
						require.Equal(t, want[0], got[0])
						require.Equal(t, then[0], after[0])
					} else {
						if fail.Way.Kind != store.Corrupt { // damage is told
							require.NotContains(t, got[0], "injected", "what failed is for the log")
						}
						if status == http.StatusServiceUnavailable {
							require.Contains(t, got[0], "Retry-After")
						}
						require.Contains(t, []string{want[0], want[1]}, got[1], "sent again")
					}
					require.Equal(t, then[1], after[1], "sent again")
				})
			})
		})
	}
}
