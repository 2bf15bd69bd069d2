package s3api_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
)

var requests = flag.Int("requests", 3000, "requests of the differential test on each store")

// TestAgainstPlainS3 sends the same random requests to the handler and to S3's
// rules in memory. Answers are the same, byte for byte: status, headers and
// documents; ids, tokens and the wording of errors aside.
func TestAgainstPlainS3(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { againstPlainS3(t, open(t), false) })
		t.Run(name+", buckets of objects", func(t *testing.T) { againstPlainS3(t, open(t), true) })
	}
}

func againstPlainS3(t *testing.T, st store.Store, ofObjects bool) {
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	var clock atomic.Int64
	clock.Store(time.Date(2024, 2, 29, 23, 59, 0, 0, time.UTC).UnixMilli())
	now := func() time.Time { return time.UnixMilli(clock.Load()).UTC() }
	c, err := listing.New(st, listing.Options{Now: now})
	require.NoError(t, err)
	options := s3api.Options{SoleWriter: true, Now: now}
	plain := &plainS3{buckets: map[string]map[string]plainObject{}, longest: 4096}
	if ofObjects {
		options.Objects, plain.longest = overBlobs(t, c), 1<<20
	}
	s := serve(t, s3api.Over(c), options)
	g := &requestMaker{rnd: seed.New(t), plain: plain}
	statuses := map[string]int{}
	for i := range race.Fewer(*requests) {
		clock.Add(int64(g.rnd.IntN(700)))
		plain.now = now()
		r := g.request()
		want := plain.do(r)
		got, token := s.send(r)
		if r.method == http.MethodHead && want.status >= 300 {
			want.body = ""
			delete(want.header, "Content-Type")
		} else if r.method == http.MethodHead {
			want.body = ""
		}
		require.Equal(t, want.status, got.status, "request %d: %+v\n%s", i, r, got.body)
		require.Equal(t, want.body, got.body, "request %d: %+v", i, r)
		for _, name := range comparedHeaders {
			w := want.header[name]
			if name == "Content-Length" && w == "" {
				continue
			}
			require.Equal(t, w, got.header[name], "request %d, header %s: %+v", i, name, r)
		}
		statuses[fmt.Sprintf("%s %d", r.method, got.status)]++
		g.goOn(r, want, token)
	}
	t.Logf("answers: %v", statuses)
}

// overBlobs makes objects of a client, with bodies in a directory.
func overBlobs(t *testing.T, c *listing.Client) *objects.Objects {
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, blobs.Close()) })
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: 1 << 10})
	require.NoError(t, err)
	return o
}

var comparedHeaders = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "ETag",
	"Last-Modified", "Location", "Cache-Control", "X-Amz-Meta-A", "X-Amz-Meta-B"}

// normal replaces what no model can know.
var normal = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`<Message>[^<]*</Message>`), "<Message>M</Message>"},
	{regexp.MustCompile(`<Resource>[^<]*</Resource>`), "<Resource>R</Resource>"},
	{regexp.MustCompile(`<RequestId>[0-9A-F]{16}</RequestId>`), "<RequestId>I</RequestId>"},
	{regexp.MustCompile(`<HostId>[0-9A-F]{32}</HostId>`), "<HostId>H</HostId>"},
	{regexp.MustCompile(`ContinuationToken>[^<]+</`), "ContinuationToken>T</"},
}

var nextToken = regexp.MustCompile(`<NextContinuationToken>([^<]+)<`)

// send asks the server; it returns the token of the next page beside the answer.
func (s *server) send(r plainRequest) (plainAnswer, string) {
	uri := "/" + r.bucket
	if r.key != "" {
		uri += "/" + url.PathEscape(r.key)
	}
	if len(r.query) > 0 {
		uri += "?" + r.query.Encode()
	}
	var headers []string
	for name, value := range r.header {
		headers = append(headers, name, value)
	}
	a := s.do(r.method, uri, r.body, headers...)
	token := ""
	if m := nextToken.FindStringSubmatch(a.body); m != nil {
		token = m[1]
	}
	body := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/xml") {
		for _, n := range normal {
			body = n.found.ReplaceAllString(body, n.as)
		}
	}
	header := map[string]string{}
	for name := range a.header {
		header[name] = a.header.Get(name)
	}
	header["ETag"] = a.header.Get("ETag")
	return plainAnswer{a.status, header, body}, token
}

// requestMaker draws requests that mostly make sense.
type requestMaker struct {
	rnd   *rand.Rand
	plain *plainS3
	// next is the page that follows the last listing, if there is one.
	next *plainRequest
}

func (g *requestMaker) oneOf(s ...string) string { return s[g.rnd.IntN(len(s))] }

func (g *requestMaker) key() string {
	var b strings.Builder
	for range 1 + g.rnd.IntN(4) {
		b.WriteString(g.oneOf("a", "b", "/", "/", "+", " ", "%", "ü", "&", "<", "\n", "~", "*", ".."))
	}
	return b.String()
}

// present is a key that the bucket has, or else the other one.
func (g *requestMaker) present(bucket, or string) string {
	keys := slices.Sorted(maps.Keys(g.plain.buckets[bucket]))
	if len(keys) == 0 {
		return or
	}
	return keys[g.rnd.IntN(len(keys))]
}

func (g *requestMaker) etag(bucket, key string) string {
	e := g.plain.buckets[bucket][key].etag()
	return g.oneOf(e, `"`+e+`"`, `"`+e+`"`, "other", "*")
}

func (g *requestMaker) request() plainRequest {
	if g.next != nil && g.rnd.IntN(4) > 0 {
		r := *g.next
		g.next = nil
		return r
	}
	r := plainRequest{bucket: g.oneOf("one", "one", "one", "two", "two", "none", "No"), query: url.Values{},
		header: map[string]string{}}
	if r.bucket == "No" && g.rnd.IntN(4) > 0 {
		r.bucket = "one"
	}
	switch g.rnd.IntN(20) {
	case 0:
		r.method = g.oneOf("PUT", "PUT", "PUT", "DELETE", "HEAD")
		if r.bucket == "none" {
			r.bucket = "two"
		}
		return r
	case 1, 2, 3, 4, 5, 6:
		r.method = "GET"
		g.listing(r.query)
		return r
	case 7, 8, 9, 10, 11, 12:
		r.method, r.key = "PUT", g.key()
		g.put(&r)
	case 13, 14:
		r.method, r.key = "DELETE", g.key()
		if g.rnd.IntN(2) == 0 {
			r.key = g.present(r.bucket, r.key)
		}
		if g.rnd.IntN(4) == 0 {
			r.header["If-Match"] = g.etag(r.bucket, r.key)
		}
	default:
		r.method, r.key = g.oneOf("GET", "GET", "HEAD"), g.key()
		if g.rnd.IntN(3) > 0 {
			r.key = g.present(r.bucket, r.key)
		}
		dates := func() string {
			return g.plain.now.Add(time.Duration(g.rnd.IntN(2000)-1900) * time.Second).Format(http.TimeFormat)
		}
		for _, h := range []struct{ name, value string }{
			{"If-Match", g.etag(r.bucket, r.key)}, {"If-None-Match", g.etag(r.bucket, r.key)},
			{"If-Modified-Since", dates()},
			{"If-Unmodified-Since", dates()},
			{"Range", g.oneOf("bytes=0-1", "bytes=1-", "bytes=-2", "bytes=-0", "bytes=3-1", "bytes=9-", "bytes=2-900",
				"lines=1-2")},
		} {
			if g.rnd.IntN(5) == 0 {
				r.header[h.name] = h.value
			}
		}
	}
	if g.rnd.IntN(10) == 0 && r.method != "PUT" {
		r.query.Set("versionId", g.oneOf("null", "null", "1"))
	}
	return r
}

func (g *requestMaker) put(r *plainRequest) {
	r.body = strings.Repeat(g.oneOf("x", "yz", "ü"), g.rnd.IntN(6))
	if g.rnd.IntN(30) == 0 {
		r.body = strings.Repeat("x", 4095+g.rnd.IntN(3))
	}
	for _, h := range []struct{ name, value string }{
		{"Content-Type", "text/x"}, {"Cache-Control", "no-cache"}, {"X-Amz-Meta-A", "1"}, {"X-Amz-Meta-B", "zwei"},
		{"Content-Md5", md5Of(r.body)},
	} {
		if g.rnd.IntN(3) == 0 {
			r.header[h.name] = h.value
		}
	}
	switch g.rnd.IntN(12) {
	case 0:
		r.header["Content-Md5"] = md5Of("something else")
	case 1:
		r.header["If-None-Match"] = g.oneOf("*", "*", g.etag(r.bucket, r.key))
	case 2:
		r.header["If-Match"] = g.etag(r.bucket, r.key)
	case 3, 4:
		from := g.present("one", g.key())
		delete(r.header, "Content-Md5")
		r.body = ""
		r.header["X-Amz-Copy-Source"] = g.oneOf("one", "one", "two", "none") + "/" + url.PathEscape(from)
		if g.rnd.IntN(2) == 0 {
			r.header["X-Amz-Metadata-Directive"] = g.oneOf("COPY", "REPLACE")
		}
		if g.rnd.IntN(6) == 0 {
			r.key = from // onto itself
		}
	}
}

func (g *requestMaker) listing(q url.Values) {
	part := func() string {
		k := g.key()
		return strings.ToValidUTF8(k[:1+g.rnd.IntN(len(k))], "")
	}
	may := func(odds int, name, value string) {
		if g.rnd.IntN(odds) == 0 {
			q.Set(name, value)
		}
	}
	may(2, "prefix", g.oneOf("", part()))
	may(2, "delimiter", g.oneOf("", "/", "/", "/", "a", "ü", "+"))
	may(2, "max-keys", g.oneOf("", "0", "1", "2", "3", "7", "1000", "5000", "-1", "x"))
	may(2, "encoding-type", g.oneOf("url", "url", "url", "", "base64"))
	switch g.rnd.IntN(3) {
	case 0:
		q.Set("list-type", "2")
		may(3, "start-after", g.oneOf("", part()))
		may(3, "fetch-owner", g.oneOf("true", "false", ""))
	case 1:
		may(2, "marker", g.oneOf("", part(), "a/", "/"))
	case 2:
		q.Set("versions", "")
		may(2, "key-marker", g.oneOf("", part(), "a/", "/"))
		may(6, "version-id-marker", g.oneOf("null", "1", ""))
	}
}

// goOn remembers the page that follows a listing.
func (g *requestMaker) goOn(r plainRequest, a plainAnswer, token string) {
	if r.method != "GET" || r.key != "" || !bytes.Contains([]byte(a.body), []byte("<IsTruncated>true<")) {
		return
	}
	// The last line is the greatest of all that the page shows.
	last, asURL := "", r.query.Get("encoding-type") == "url"
	for _, l := range linesOf(a.body, asURL, false) {
		last = l.text
	}
	next := r
	next.query = url.Values{}
	for name, values := range r.query {
		next.query[name] = values
	}
	switch {
	case r.query.Get("list-type") == "2":
		next.query.Set("continuation-token", token)
		next.after = last
	case r.query.Has("versions"):
		next.query.Set("key-marker", last)
		next.query.Del("version-id-marker")
	default:
		next.query.Set("marker", last)
	}
	g.next = &next
}
