package s3api_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Every name of three and four characters over those that matter, against S3's rules as
// expressions.
func TestBucketNamesAgainstRules(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	address := regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$`)
	reserved := regexp.MustCompile(`^(xn--|sthree-|amzn-s3-demo-)|(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$`)
	check := func(name string) {
		bad := !shape.MatchString(name) || strings.Contains(name, "..") || address.MatchString(name) ||
			reserved.MatchString(name)
		require.Equal(t, bad, s3api.BadBucketName(name) != "", "%q", name)
	}
	const characters = "amz059-.A_`{/:\x00\xff"
	for i := range len(characters) {
		for j := range len(characters) {
			for k := range len(characters) {
				name := string([]byte{characters[i], characters[j], characters[k]})
				check(name)
				check("b" + name)
			}
		}
	}
	for n := range 70 {
		check(strings.Repeat("a", n))
	}
	for _, name := range []string{
		"1.2.3.4", "1.2.3.a", "1.2.3", "1.2.3.4.5", "12.34.56.78", "1.2-3.4", "xn--a", "xn-a", "sthree-a", "asthree-",
		"amzn-s3-demo-a", "a-s3alias", "as3alias",
		"a--ol-s3", "a-ol-s3", "a.mrap", "amrap", "a--x-s3", "a--table-s3", "a-table-s3",
	} {
		check(name)
	}
}

func TestEncodedBuckets(t *testing.T) {
	for uri, want := range map[string][3]string{
		"/%61bc/k": {"abc", "k", ""}, "/a%zz/k": {"", "", "InvalidURI"}, "/a%2Fb": {"", "", "InvalidBucketName"},
		"/abc": {"abc", "", ""},
	} {
		bucket, key, code := s3api.ParseTarget(request("GET", uri))
		require.Equal(t, want, [3]string{bucket, key, code}, uri)
	}
}

// A body whose reading fails fails with that error, wherever it was; also where lines
// end with a lone line feed, as some clients send trailers.
func TestChunkedReadErrors(t *testing.T) {
	broken := errors.New("broken")
	plain := chunked("hello, world", []int{5, 3}, true, "x-amz-checksum-crc32:abcd", "x-other:1")
	bare := strings.Replace(strings.Replace(plain, "abcd\r\n", "abcd\n", 1), "1\r\n\r\n", "1\n\r\n\r\n", 1)
	for _, body := range []string{plain, bare} {
		data, trailer, err := s3api.ReadChunked(strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, "hello, world", data)
		require.Equal(t, "1", trailer.Get("x-other"))
		for at := range len(body) + 1 {
			_, _, err := s3api.ReadChunked(io.MultiReader(strings.NewReader(body[:at]), iotest.ErrReader(broken)))
			require.ErrorIs(t, err, broken, "after %q", body[:at])
		}
	}
	// The largest size that is one; and what is larger.
	_, _, err := s3api.ReadChunked(strings.NewReader("7fffffffffffffff\r\nx"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = s3api.ReadChunked(strings.NewReader("8000000000000000\r\nx"))
	require.ErrorIs(t, err, s3api.ErrFraming)
	// A line, and all trailers together, up to their limits.
	line := func(n int) string { return "0;" + strings.Repeat("x", n-len("0;\r\n")) + "\r\n\r\n" }
	_, _, err = s3api.ReadChunked(strings.NewReader(line(1024)))
	require.NoError(t, err)
	_, _, err = s3api.ReadChunked(strings.NewReader(line(1025)))
	require.ErrorIs(t, err, s3api.ErrFraming)
	trailers := func(n int) string {
		text := "0\r\n" + strings.Repeat("a:"+strings.Repeat("b", 510)+"\r\n", 15) // 512 each
		return text + "c:" + strings.Repeat("d", n-15*512-2) + "\r\n\r\n"
	}
	_, _, err = s3api.ReadChunked(strings.NewReader(trailers(8192)))
	require.NoError(t, err)
	_, _, err = s3api.ReadChunked(strings.NewReader(trailers(8193)))
	require.ErrorIs(t, err, s3api.ErrFraming)
}

// handler serves a store without sockets.
type handler struct {
	t *testing.T
	h http.Handler
	c *listing.Client
}

func handle(t *testing.T, o s3api.Options) *handler {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "abc"))
	h, err := s3api.New(s3api.Over(c), o)
	require.NoError(t, err)
	return &handler{t, h, c}
}

func (h *handler) want(status int, code, method, target, body string, headers ...string) answer {
	h.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.h.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.String()}
	require.Equal(h.t, status, a.status, "%s %.80s %.80q: %s", method, target, headers, a.body)
	if code != "" && method != http.MethodHead {
		require.Equal(h.t, code, a.code(), "%s %.80s", method, target)
	}
	return a
}

// Each limit, and one beyond it.
func TestLimits(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	h := handle(t, s3api.Options{})
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		status := map[string]int{"DELETE": 204}[method]
		if status == 0 {
			status = 404
		}
		h.want(status, "", method, "/abc/"+x(1024), "")
		h.want(400, "KeyTooLongError", method, "/abc/"+x(1025), "")
	}
	h.want(200, "", "PUT", "/abc/"+x(1024), "v")
	h.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "abc/"+x(1024))
	h.want(400, "InvalidArgument", "PUT", "/abc/copy", "", "x-amz-copy-source", "abc/"+x(1025))
	h.want(200, "", "PUT", "/abc/k", x(4096))
	h.want(400, "EntityTooLarge", "PUT", "/abc/k", x(4097))
	h.want(200, "", "PUT", "/abc/k", "", "x-amz-meta-a", x(2047))
	h.want(400, "MetadataTooLarge", "PUT", "/abc/k", "", "x-amz-meta-a", x(2048))
	h.want(200, "", "PUT", "/abc/k", "", "x-amz-meta-a", x(1000), "x-amz-meta-bb", x(1045))
	h.want(400, "MetadataTooLarge", "PUT", "/abc/k", "", "x-amz-meta-a", x(1000), "x-amz-meta-bb", x(1046))
	for _, name := range []string{"Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding",
		"Content-Language", "Expires"} {
		a := h.want(200, "", "PUT", "/abc/k", "", name, x(1024))
		require.Empty(t, a.body)
		require.Equal(t, []string{x(1024)}, append(h.want(200, "", "HEAD", "/abc/k", "").header[name],
			h.want(200, "", "HEAD", "/abc/k", "").header[strings.ToLower(name)]...))
		h.want(400, "InvalidArgument", "PUT", "/abc/k", "", name, x(1025))
	}
	for size, status := range map[string]int{"0": 200, "9223372036854775807": 200, "-1": 400, "9223372036854775808": 400,
		"": 400, "x": 400} {
		h.want(status, "", "PUT", "/abc/k", "", "x-evenkeel-size", size, "x-evenkeel-etag", "e")
	}
	for etag, status := range map[string]int{x(256): 200, x(257): 400, "": 400, "!~": 200, "a b": 400, "a\x7f": 400,
		`"a"`: 200, `"`: 400, `a"b`: 400} {
		h.want(status, "", "PUT", "/abc/k", "", "x-evenkeel-size", "5", "x-evenkeel-etag", etag)
	}
	h.want(400, "InvalidArgument", "PUT", "/abc/k", "v", "x-evenkeel-size", "5", "x-evenkeel-etag", "e")
	h.want(200, "", "PUT", "/abc/k", "", "x-evenkeel-size", "5", "x-evenkeel-etag", "e")
	a := h.want(200, "", "HEAD", "/abc/k", "")
	require.Equal(t, []string{"5", `"e"`}, []string{a.header.Get("x-evenkeel-size"), a.header.Get("x-evenkeel-etag")})
	a = h.want(200, "", "HEAD", "/abc/copy", "")
	require.Empty(t, a.header.Get("x-evenkeel-size")+a.header.Get("x-evenkeel-etag"))

	for max, shown := range map[string]string{"0": "0", "1": "1", "10": "10", "1000": "1000", "1001": "1000", "2147483647": "1000"} {
		require.Contains(t, h.want(200, "", "GET", "/abc?list-type=2&max-keys="+max, "").body, "<MaxKeys>"+shown+"</MaxKeys>")
	}
	for _, bad := range []string{
		"max-keys=-1", "max-keys=2147483648", "max-keys=x", "fetch-owner=x", "evenkeel-reverse=x", "encoding-type=x",
		"evenkeel-splits=0", "evenkeel-splits=-1", "evenkeel-splits=10001", "evenkeel-splits=",
		"evenkeel-splits=2&max-keys=x",
	} {
		h.want(400, "InvalidArgument", "GET", "/abc?list-type=2&"+bad, "")
	}
	for _, good := range []string{"fetch-owner=true", "fetch-owner=false", "evenkeel-reverse=false", "encoding-type=url",
		"evenkeel-splits=1", "evenkeel-splits=10000"} {
		h.want(200, "", "GET", "/abc?list-type=2&"+good, "")
	}
	for _, bad := range []string{"0", "-1", "10001", "x", "99999999999999999999"} {
		require.Contains(t, h.want(400, "InvalidArgument", "GET", "/abc?evenkeel-splits="+bad, "").body,
			"is a number of pieces, 1 to 10000")
	}
	require.Contains(t, h.want(200, "", "GET", "/abc?evenkeel-splits=2&encoding-type=url", "").body,
		"<EncodingType>url</EncodingType>")
	for _, form := range []string{"", "versions&"} {
		for _, name := range []string{"evenkeel-from", "evenkeel-to", "evenkeel-reverse"} {
			h.want(501, "NotImplemented", "GET", "/abc?"+form+name+"=a", "")
		}
	}
	h.want(400, "InvalidArgument", "GET", "/abc?versions&version-id-marker=null", "")
	h.want(400, "InvalidArgument", "GET", "/abc?versions&key-marker=a&version-id-marker=x", "")
	h.want(200, "", "GET", "/abc?versions&key-marker=a&version-id-marker=null", "")
	h.want(200, "", "GET", "/?max-buckets=10000", "")
	h.want(400, "InvalidArgument", "GET", "/?max-buckets=10001", "")

	document := func(keys ...string) (string, []string) {
		doc := "<Delete>"
		for _, k := range keys {
			doc += "<Object><Key>" + k + "</Key></Object>"
		}
		doc += "</Delete>"
		sum := md5.Sum([]byte(doc))
		return doc, []string{"Content-MD5", b64(sum[:])}
	}
	keys := make([]string, 1001)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	doc, digest := document(keys[:1000]...)
	require.Equal(t, 1000, strings.Count(h.want(200, "", "POST", "/abc?delete", doc, digest...).body, "<Deleted>"))
	doc, digest = document(keys...)
	require.Contains(t, h.want(400, "MalformedXML", "POST", "/abc?delete", doc, digest...).body, "more than 1000 objects")
	doc, digest = document()
	h.want(400, "MalformedXML", "POST", "/abc?delete", doc, digest...)
	doc, digest = document(x(1024), x(1025))
	require.Equal(t, 1, strings.Count(h.want(200, "", "POST", "/abc?delete", doc, digest...).body,
		"<Code>KeyTooLongError</Code>"))
	h.want(404, "NoSuchKey", "GET", "/abc/"+x(1024), "")

	var cuts strings.Builder
	for i := range 4096 { // 4 MiB in all
		fmt.Fprintf(&cuts, "%01023d\n", i)
	}
	h.want(200, "", "PUT", "/cuts1?evenkeel-cuts", cuts.String())
	h.want(400, "EntityTooLarge", "PUT", "/cuts2?evenkeel-cuts", cuts.String()+"a")
	configuration := func(n int) string {
		const open, end = "<CreateBucketConfiguration><LocationConstraint>",
			"</LocationConstraint></CreateBucketConfiguration>"
		return open + x(n-len(open)-len(end)) + end
	}
	h.want(200, "", "PUT", "/config1", configuration(64<<10))
	h.want(400, "EntityTooLarge", "PUT", "/config2", configuration(64<<10+1))
	for _, o := range []s3api.Options{{MaxBodyBytes: -1}, {MaxCuts: -1}, {MaxRequests: -1}, {MinRate: -1},
		{RequestTimeout: -1}, {BodyTimeout: -1}, {AnswerTimeout: -1}, {MemoryBytes: -1}} {
		_, err := s3api.New(s3api.Over(h.c), o)
		require.Error(t, err)
	}
	for _, k := range []struct {
		id, secret, want string
	}{
		{x(128), x(16), ""},
		{x(129), x(16), "id is 1 to 128"},
		{"", x(16), "id is"},
		{"a", x(256), ""},
		{"a", x(257), "16 to 256"},
		{"a", x(15), "16 to 256"},
		{"!~", x(16), ""},
		{"a b", x(16), "id is"},
		{"a,b", x(16), "id is"},
		{"a=b", x(16), "id is"},
		{"ä", x(16), "id is"},
	} {
		const form = "keys:\n- {id: %q, secret: %q, access: read-only, everything: true}\ncomplete: true"
		_, err := s3api.ParseKeys(fmt.Appendf(nil, form, k.id, k.secret))
		if k.want == "" {
			require.NoError(t, err, k.id)
		} else {
			require.ErrorContains(t, err, k.want)
		}
	}
}

// Keys that are not UTF-8 are stored on demand only, also by a copy.
func TestNewKeysAreText(t *testing.T) {
	h := handle(t, s3api.Options{})
	h.want(400, "InvalidURI", "PUT", "/abc/%ff", "v")
	h.want(200, "", "PUT", "/abc/%ff", "v", "x-evenkeel-key-bytes", "any")
	h.want(400, "InvalidURI", "PUT", "/abc/%fe", "", "x-amz-copy-source", "abc/%ff")
	h.want(200, "", "PUT", "/abc/%fe", "", "x-amz-copy-source", "abc/%ff", "x-evenkeel-key-bytes", "any")
	h.want(200, "", "GET", "/abc/%fe", "")
	for _, form := range []string{"list-type=2", "", "versions"} {
		h.want(400, "InvalidArgument", "GET", "/abc?"+form, "")
		require.Contains(t, h.want(200, "", "GET", "/abc?encoding-type=url&"+form, "").body, "<Key>%FE</Key>")
		for _, param := range []string{"prefix=%ff", "delimiter=%ff", "start-after=%ff", "marker=%ff", "key-marker=%ff"} {
			name, _, _ := strings.Cut(param, "=")
			used := name == "prefix" || name == "delimiter" || name == map[string]string{"list-type=2": "start-after",
				"": "marker", "versions": "key-marker"}[form]
			if !used { // it says where another form of listings begins
				h.want(501, "NotImplemented", "GET", "/abc?max-keys=0&encoding-type=url&"+param+"&"+form, "")
				continue
			}
			h.want(400, "InvalidArgument", "GET", "/abc?max-keys=0&"+param+"&"+form, "")
			h.want(200, "", "GET", "/abc?max-keys=0&encoding-type=url&"+param+"&"+form, "")
		}
	}
}

// An object's only version is null, wherever one may be named.
func TestVersionsThatMayBeNamed(t *testing.T) {
	h := handle(t, s3api.Options{})
	h.want(200, "", "PUT", "/abc/k", "v")
	for _, c := range []struct{ value, message string }{
		{"?versionId=null", ""},
		{"?versionId=", "Version id cannot be the empty string"},
		{"?versionId=5", "Invalid version id specified"},
	} {
		for _, call := range []string{"GET /abc/k", "HEAD /abc/k", "PUT /abc/to", "DELETE /abc/k"} {
			method, target, _ := strings.Cut(call, " ")
			var headers []string
			if method == "PUT" {
				headers = []string{"x-amz-copy-source", "abc/k" + c.value}
			} else {
				target += c.value
			}
			if c.message == "" {
				status := map[string]int{"DELETE": 204}[method]
				if status == 0 {
					status = 200
				}
				h.want(status, "", method, target, "", headers...)
			} else {
				a := h.want(400, "InvalidArgument", method, target, "", headers...)
				if method != "HEAD" {
					require.Contains(t, a.body, c.message)
				}
			}
		}
		h.want(200, "", "PUT", "/abc/k", "v")
		status, code := 200, ""
		if c.message != "" {
			status, code = 400, "InvalidArgument"
		}
		h.want(status, code, "GET", "/abc/k?acl&"+c.value[1:], "")
		h.want(status, code, "PUT", "/abc/k?acl&"+c.value[1:], "", "x-amz-acl", "private")
	}
	h.want(400, "InvalidArgument", "PUT", "/abc/k?versionId=null", "v")
}

// Access lists: what is private already, and nothing else.
func TestPrivateOnly(t *testing.T) {
	h := handle(t, s3api.Options{})
	h.want(200, "", "PUT", "/abc/k", "v")
	for _, target := range []string{"/abc?acl", "/abc/k?acl"} {
		document := h.want(200, "", "GET", target, "").body
		h.want(200, "", "PUT", target, document)
		h.want(200, "", "PUT", target, "", "x-amz-acl", "private")
		h.want(501, "NotImplemented", "PUT", target, "")
		h.want(501, "NotImplemented", "PUT", target, document, "x-amz-acl", "private")
		h.want(400, "MalformedACLError", "PUT", target, "x")
		both := strings.NewReplacer("</Grant>", "<More/></Grant>", "</Grantee>", "<URI>a</URI></Grantee>")
		h.want(501, "NotImplemented", "PUT", target, both.Replace(document))
		both = strings.NewReplacer("</AccessControlList>", "<More/></AccessControlList>", "</AccessControlPolicy>",
			"<More/></AccessControlPolicy>")
		h.want(501, "NotImplemented", "PUT", target, both.Replace(document))
		for _, change := range [][2]string{
			{"FULL_CONTROL", "READ"},
			{"<Owner><ID>evenkeel", "<Owner><ID>other"},
			{`"CanonicalUser"><ID>evenkeel`, `"CanonicalUser"><ID>other`},
			{"</Grant>", "<More/></Grant>"},
			{"</Grantee>", "<URI>a</URI></Grantee>"},
			{"</AccessControlList>", "<More/></AccessControlList>"},
			{"</AccessControlPolicy>", "<More/></AccessControlPolicy>"},
			{"<AccessControlList>", "<AccessControlList><Grant></Grant>"},
		} {
			require.Contains(t, document, change[0])
			h.want(501, "NotImplemented", "PUT", target, strings.Replace(document, change[0], change[1], 1))
		}
	}
}

// The region of a signature is told as it was sent.
func TestAnotherRegion(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	now := time.Now().UTC()
	q := fmt.Sprintf("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s&X-Amz-Expires=60&"+
		"X-Amz-SignedHeaders=host&X-Amz-Signature=0",
		url.QueryEscape("ADMIN/"+now.Format("20060102")+"/mars/s3/aws4_request"), now.Format("20060102T150405Z"))
	require.Contains(t, s.want(400, "AuthorizationQueryParametersError", "GET", "/abc/k?"+q, "").body,
		"<Region>us-east-1</Region>")
	elsewhere := *s
	elsewhere.sign = func(r *sigv4.Request, body string) {
		require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the admin", "mars", sigv4.PayloadOf([]byte(body)),
			time.Now()))
	}
	a := elsewhere.want(400, "AuthorizationHeaderMalformed", "HEAD", "/abc/k", "")
	require.Equal(t, "us-east-1", a.header.Get("x-amz-bucket-region"))
	h := handle(t, s3api.Options{Region: "mars"})
	require.Contains(t, h.want(200, "", "GET", "/abc?location", "").body, ">mars</LocationConstraint>")
	require.Equal(t, "mars", h.want(200, "", "HEAD", "/abc", "").header.Get("x-amz-bucket-region"))
}

// What is logged, and how loudly; and what is counted.
func TestWhatIsLogged(t *testing.T) {
	for _, c := range []struct {
		err          error
		every        bool
		target       string
		level, code  string
		cause, shown string
	}{
		{nil, false, "/abc?list-type=2", "", "", "", ""},
		{nil, true, "/abc?list-type=2", "INFO", "", "", "/abc?list-type=2"},
		{nil, true, "/abc/k", "INFO", "NoSuchKey", "", "/abc/k"},
		{nil, false, "/abc?policy", "INFO", "NotImplemented", "", "/abc?policy"},
		{nil, false, "/abc?max-keys=x", "INFO", "InvalidArgument", "", "/abc?max-keys=x"},
		{store.Errorf(store.Unavailable, "away"), false, "/abc/k", "ERROR", "ServiceUnavailable", "unavailable: away",
			"/abc/k"},
		{errors.New("fire"), false, "/abc/k?X-Amz-Signature=1", "ERROR", "InternalError", "fire", "/abc/k?…"},
		{errors.New("fire"), false, "/abc/k?AWSAccessKeyId=a&Signature=1", "ERROR", "InternalError", "fire", "/abc/k?…"},
		{listing.ErrNoSuchBucket, false, "/abc", "INFO", "NoSuchBucket", "not found: there is no such bucket", "/abc"},
	} {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		f := &faulty{err: c.err, pages: []listing.Page{pageOf("a", "b")}}
		if c.err != nil {
			f.pages = nil
		}
		if c.code == "NoSuchKey" {
			f.err = listing.ErrNotFound
		}
		h, err := s3api.New(f, s3api.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), LogEvery: c.every,
			Metrics: registry})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", c.target, nil)
		r.Header.Set("User-Agent", "agent")
		h.ServeHTTP(w, r)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP evenkeel_s3_requests_in_flight Requests being served on the S3 address.
# TYPE evenkeel_s3_requests_in_flight gauge
evenkeel_s3_requests_in_flight 0
`), "evenkeel_s3_requests_in_flight"))
		count, err := testutil.GatherAndCount(registry, "evenkeel_s3_requests_total", "evenkeel_s3_request_seconds")
		require.NoError(t, err)
		require.Equal(t, 2, count)
		listed := 0
		if w.Code == 200 {
			listed = 2
		}
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP evenkeel_s3_listed_entries_total Keys and common prefixes sent in listings.
# TYPE evenkeel_s3_listed_entries_total counter
evenkeel_s3_listed_entries_total %d
`, listed)), "evenkeel_s3_listed_entries_total"))
		if c.level == "" {
			require.Empty(t, log.String())
			continue
		}
		var line map[string]any
		require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.String())
		require.Equal(t, c.level, line["level"], c.target)
		require.Equal(t, c.shown, line["uri"])
		require.Equal(t, "GET", line["method"])
		require.Equal(t, "agent", line["agent"])
		require.Equal(t, w.Header().Get("x-amz-request-id"), line["id"])
		require.EqualValues(t, w.Code, line["status"])
		require.EqualValues(t, w.Body.Len(), line["bytes"])
		require.NotContains(t, line, "key")
		if c.code == "" {
			require.NotContains(t, line, "code")
		} else {
			require.Equal(t, c.code, line["code"])
		}
		if c.cause != "" {
			require.Equal(t, c.cause, line["error"])
		} else if c.code != "NoSuchKey" {
			require.NotContains(t, line, "error")
		}
	}
}

// crowded has many buckets and no failure.
type crowded struct {
	faulty
	n   int
	end error
}

func (c *crowded) Buckets(_ context.Context, prefix, after string) iter.Seq2[listing.BucketInfo, error] {
	return func(yield func(listing.BucketInfo, error) bool) {
		for i := range c.n {
			if name := fmt.Sprintf("bucket-%06d", i); name > after && strings.HasPrefix(name, prefix) &&
				!yield(listing.BucketInfo{Name: name, Created: time.Unix(int64(i), 0)}, nil) {
				return
			}
		}
		if c.end != nil {
			yield(listing.BucketInfo{}, c.end)
		}
	}
}

// A list of buckets that is sent in parts is one document; in pages it is the same list.
func TestManyBuckets(t *testing.T) {
	race.Skip(t)
	const n = 9000
	f := &crowded{n: n}
	h, err := s3api.New(f, s3api.Options{})
	require.NoError(t, err)
	get := func(target string) (names []string, token string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		require.Equal(t, 200, w.Code)
		require.Equal(t, "application/xml", w.Header().Get("Content-Type"))
		var doc struct {
			XMLName xml.Name `xml:"ListAllMyBucketsResult"`
			Buckets struct {
				Bucket []struct{ Name, CreationDate string }
				Text   string `xml:",chardata"`
			}
			ContinuationToken, Prefix string
			Text                      string `xml:",chardata"`
		}
		require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &doc), target)
		require.Empty(t, strings.TrimSpace(doc.Text+doc.Buckets.Text))
		for _, b := range doc.Buckets.Bucket {
			names = append(names, b.Name)
		}
		return names, doc.ContinuationToken
	}
	all, token := get("/")
	require.Len(t, all, n)
	require.Empty(t, token)
	require.Equal(t, "bucket-000000", all[0])
	require.Equal(t, "bucket-008999", all[n-1])
	for _, size := range []int{n - 1, n, 4500, 2500} {
		var paged []string
		for token, pages := "", 0; pages == 0 || token != ""; pages++ {
			target := fmt.Sprintf("/?max-buckets=%d", size)
			if token != "" {
				target += "&continuation-token=" + token
			}
			var page []string
			page, token = get(target)
			require.LessOrEqual(t, len(page), size)
			require.Equal(t, token != "", len(paged)+len(page) < n)
			paged = append(paged, page...)
		}
		require.Equal(t, all, paged)
	}
	some, _ := get("/?prefix=bucket-00000")
	require.Len(t, some, 10)
	none, _ := get("/?bucket-region=mars")
	require.Empty(t, none)
	same, _ := get("/?bucket-region=us-east-1")
	require.Len(t, same, n)
	for _, bad := range []string{"%21", base64.RawURLEncoding.EncodeToString([]byte("1:")),
		base64.RawURLEncoding.EncodeToString([]byte("2:a"))} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/?continuation-token="+bad, nil))
		require.Equal(t, 400, w.Code)
	}
	// A failure before anything was sent is an error document.
	f.n, f.end = 5, store.Errorf(store.Unavailable, "away")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 503, w.Code)
	f.n = n
	var log bytes.Buffer
	h, err = s3api.New(f, s3api.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	require.NoError(t, err)
	require.Panics(t, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) },
		"the connection breaks")
	require.Contains(t, log.String(), "unavailable: away")
}

// named has the buckets that it says.
type named struct {
	faulty
	names []string
}

func (n *named) Buckets(context.Context, string, string) iter.Seq2[listing.BucketInfo, error] {
	return func(yield func(listing.BucketInfo, error) bool) {
		for _, name := range n.names {
			if !yield(listing.BucketInfo{Name: name, Created: time.Unix(0, 0)}, nil) {
				return
			}
		}
	}
}

// A list of buckets of up to 256 KiB before its end is sent as a whole; a larger one in parts,
// each with 30 seconds to be read.
func TestPartsOfBucketLists(t *testing.T) {
	get := func(names ...string) *deadlines {
		h, err := s3api.New(&named{names: names}, s3api.Options{})
		require.NoError(t, err)
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, 200, w.Code)
		return w
	}
	const end = len("</Buckets></ListAllMyBucketsResult>")
	empty := get().Body.Len() - end
	each := get("").Body.Len() - end - empty // and the length of the name
	left := 256<<10 - empty
	var names []string
	for left >= 2*(each+63) {
		names = append(names, strings.Repeat("a", 63))
		left -= each + 63
	}
	left -= each
	for n, parts := range map[int]bool{left: false, left + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			w := get(append(names, strings.Repeat("c", n))...)
			if !parts {
				require.Equal(t, fmt.Sprint(256<<10+end), w.Header().Get("Content-Length"))
				require.Zero(t, w.write)
				return
			}
			require.Empty(t, w.Header().Get("Content-Length"))
			require.Equal(t, time.Now().Add(30*time.Second), w.write)
			require.Equal(t, 256<<10+1+end, w.Body.Len())
		})
	}
}

// endless lists pages without end, each after a second; every tenth has a key.
type endless struct {
	faulty
	n int
}

func (*endless) Settings(context.Context) ([]byte, error) { return nil, nil }

func (e *endless) Bucket(string) s3api.Bucket { return e }

func (e *endless) List(context.Context, listing.Query) (listing.Page, error) {
	time.Sleep(time.Second)
	e.n++
	p := listing.Page{Next: listing.Token(fmt.Sprint("t", e.n))}
	if e.n%10 == 0 {
		p.Items = pageOf(fmt.Sprint("key", e.n)).Items
	}
	return p, nil
}

// A page goes on reading past empty pages for two seconds, and where there are no tokens
// until it has a key to go on from.
func TestPagesThatStayShort(t *testing.T) {
	for form, calls := range map[string]int{"list-type=2": 3, "": 10, "versions": 10} {
		synctest.Test(t, func(t *testing.T) {
			e := &endless{}
			h, err := s3api.New(e, s3api.Options{})
			require.NoError(t, err)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/abc?delimiter=/&"+form, nil))
			require.Equal(t, 200, w.Code)
			require.Equal(t, calls, e.n, form)
			require.Contains(t, w.Body.String(), "<IsTruncated>true</IsTruncated>")
		})
	}
}

// idle lists pages without items, and with a key each third one if it shows any.
type idle struct {
	faulty
	keys   bool
	n      int
	limits []int
}

func (*idle) Settings(context.Context) ([]byte, error) { return nil, nil }

func (e *idle) Bucket(string) s3api.Bucket { return e }

func (e *idle) List(_ context.Context, q listing.Query) (listing.Page, error) {
	e.n++
	e.limits = append(e.limits, q.Limit)
	p := listing.Page{Next: listing.Token(fmt.Sprint("t", e.n))}
	if e.keys && e.n%3 == 0 {
		p.Items = pageOf(fmt.Sprint("key", e.n)).Items
	}
	return p, nil
}

// A page reads 32 pages without items, and those with items beside.
func TestEmptyReadsOfAPage(t *testing.T) {
	for _, c := range []struct {
		keys       bool
		max, calls int
		next       string
	}{{false, 1000, 32, "t32"}, {true, 1000, 47, "t47"}, {true, 2, 6, "t6"}, {true, 1, 3, "t3"}} {
		e := &idle{keys: c.keys}
		h, err := s3api.New(e, s3api.Options{})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf("/abc?list-type=2&max-keys=%d", c.max), nil))
		require.Equal(t, c.calls, e.n)
		require.Contains(t, w.Body.String(), "<NextContinuationToken>"+c.next+"</NextContinuationToken>")
		if c.max == 2 {
			require.Equal(t, []int{2, 2, 2, 1, 1, 1}, e.limits, "what is missing yet")
		}
	}
}

func TestTimesInDocuments(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Date(2024, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2001, 2, 3, 4, 5, 6, 7, time.FixedZone("", 7200)),
	} {
		require.Equal(t, at.UTC().Truncate(time.Second).Format("2006-01-02T15:04:05.000Z"), s3api.XMLTime(at))
	}
}

// watched tells how many requests are in flight while it is asked.
type watched struct {
	faulty
	registry *prometheus.Registry
	seen     string
}

func (*watched) Settings(context.Context) ([]byte, error) { return nil, nil }

func (w *watched) Bucket(string) s3api.Bucket { return w }

func (w *watched) List(context.Context, listing.Query) (listing.Page, error) {
	families, err := w.registry.Gather()
	for _, f := range families {
		if f.GetName() == "evenkeel_s3_requests_in_flight" {
			w.seen = fmt.Sprint(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return listing.Page{}, err
}

func TestRequestsInFlight(t *testing.T) {
	w := &watched{registry: prometheus.NewRegistry()}
	h, err := s3api.New(w, s3api.Options{Metrics: w.registry})
	require.NoError(t, err)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("HEAD", "/abc", nil))
	require.Equal(t, "1", w.seen)
}

// A mass deletion in which anything fails that is not the client's fault fails as a whole.
func TestMassDeletionsFailAsAWhole(t *testing.T) {
	doc := "<Delete><Object><Key>a</Key></Object><Object><Key></Key></Object></Delete>"
	sum := md5.Sum([]byte(doc))
	for _, c := range []struct {
		err    error
		status int
	}{{nil, 200}, {errors.New("fire"), 500}, {store.Errorf(store.Unavailable, "away"), 503},
		{store.Errorf(store.Conflict, "meanwhile"), 200}} {
		h, err := s3api.New(&faulty{err: c.err, pages: []listing.Page{{}}}, s3api.Options{})
		require.NoError(t, err)
		r := httptest.NewRequest("POST", "/abc?delete", strings.NewReader(doc))
		r.Header.Set("Content-MD5", b64(sum[:]))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, "%v: %s", c.err, w.Body)
	}
}

// slowly deletes each key within a second, and counts what goes on at once.
type slowly struct {
	faulty
	now, most, all atomic.Int64
}

func (*slowly) Settings(context.Context) ([]byte, error) { return nil, nil }

func (s *slowly) Bucket(string) s3api.Bucket { return s }

func (s *slowly) Delete(context.Context, []byte) error {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.all.Add(1)
	time.Sleep(time.Second)
	return nil
}

// A mass deletion deletes 64 keys at once, and no more.
func TestDeletesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := "<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", 200) + "</Delete>"
		s := &slowly{faulty: faulty{pages: []listing.Page{{}}}}
		h, err := s3api.New(s, s3api.Options{})
		require.NoError(t, err)
		r := httptest.NewRequest("POST", "/abc?delete", strings.NewReader(doc))
		r.Header.Set("Content-MD5", md5Of(doc))
		w := httptest.NewRecorder()
		begin := time.Now()
		h.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, []int64{200, 64}, []int64{s.all.Load(), s.most.Load()})
		require.Equal(t, 4*time.Second, time.Since(begin))
	})
}

// The keys of a mass deletion are 1,024 times 1,000 bytes and a text that is too long; one byte
// more is too much.
func TestKeysOfMassDeletions(t *testing.T) {
	for extra, code := range map[int]string{0: "", 1: "MalformedXML"} {
		doc := "<Delete>"
		for left := 1000*1024 + 64<<10 + extra; left > 0; {
			n := min(left, 60_000)
			doc += "<Object><Key>" + strings.Repeat("k", n) + "</Key></Object>"
			left -= n
		}
		_, got := s3api.ParseDelete([]byte(doc + "</Delete>"))
		require.Equal(t, code, got)
	}
	// So are the bytes of one tag,
	for n, code := range map[int]string{64 << 10: "", 64<<10 + 1: "MalformedXML"} {
		const tag = "<Delete a=''>"
		doc := "<Delete a='" + strings.Repeat("x", n-len(tag)) + "'><Object><Key>k</Key></Object></Delete>"
		_, got := s3api.ParseDelete([]byte(doc))
		require.Equal(t, code, got, "%d bytes", n)
	}
	// and of one text.
	for n, code := range map[int]string{64 << 10: "", 64<<10 + 1: "MalformedXML"} {
		half := strings.Repeat("k", 32<<10)
		doc := "<Delete><Object><Key>" + half + "<!---->" + half + strings.Repeat("k", n-64<<10) + "</Key></Object></Delete>"
		_, got := s3api.ParseDelete([]byte(doc))
		require.Equal(t, code, got, "%d bytes", n)
	}
}

// What a listing shows of a record that was cut is nothing, as long as the cut shows.
func TestSummariesOfDamagedRecords(t *testing.T) {
	inline := s3api.Object{Modified: time.UnixMilli(1_700_000_000_000), ContentType: "text/plain",
		Headers: []s3api.Header{{Name: "a", Value: "b"}}, Body: []byte("body")}
	external := s3api.Object{Modified: time.UnixMilli(1), External: true, Size: 1 << 40, ETag: "etag"}
	for _, o := range []s3api.Object{inline, external} {
		record := o.AppendRecord(nil)
		size, _, err := s3api.Summary(record)
		require.NoError(t, err)
		require.Equal(t, max(o.Size, int64(len(o.Body))), size)
		whole := len(record) - len(o.Body)
		if o.External { // a summary ends with the ETag
			whole = bytes.Index(record, []byte("etag")) + len("etag")
		}
		for i := 1; i < whole; i++ {
			_, _, err := s3api.Summary(record[:i])
			require.ErrorIs(t, err, store.Corrupt, "cut to %d of %d bytes", i, len(record))
		}
		for flag := byte(2); flag < 0x80; flag <<= 1 {
			other := bytes.Clone(record)
			other[2] |= flag
			_, _, err := s3api.Summary(other)
			require.ErrorIs(t, err, store.Corrupt, "with a flag %#x that is unknown", flag)
		}
	}
}

// A record that ends within its digest is damaged, whatever the rest looks like.
func TestASummaryWithoutItsDigest(t *testing.T) {
	_, _, err := s3api.Summary([]byte("\xfe\x01\x00\x00\x00\x00"))
	require.ErrorIs(t, err, store.Corrupt)
}

// Trailers that end with a lone line feed and a CRLF beside it, as minio-go sends them:
// the CRLF is the empty line where nothing follows, and else is read over.
func TestTrailersWithLoneLineFeeds(t *testing.T) {
	for body, want := range map[string]map[string]string{
		"0\r\na:b\n\r\n":                     {"a": "b"},
		"0\r\na:b\n\r\n\r\n":                 {"a": "b"},
		"0\r\na:b\n\r\nc:d\r\n\r\n":          {"a": "b", "c": "d"},
		"0\r\na:b\n\r\nc:d\n\r\n":            {"a": "b", "c": "d"},
		"0\r\na:b\n\r\nc:d\n\r\ne:f\r\n\r\n": {"a": "b", "c": "d", "e": "f"},
		"0\r\na:b\r\nc:d\n\r\n\r\n":          {"a": "b", "c": "d"},
	} {
		_, trailer, err := s3api.ReadChunked(strings.NewReader(body))
		require.NoError(t, err, "%q", body)
		got := map[string]string{}
		for name := range trailer {
			got[strings.ToLower(name)] = trailer.Get(name)
		}
		require.Equal(t, want, got, "%q", body)
	}
	for _, body := range []string{"0\r\na:b\n", "0\r\na:b\n\r", "0\r\na:b\r\n", "0\r\na:b\n\r\nc"} {
		_, _, err := s3api.ReadChunked(strings.NewReader(body))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", body)
	}
	for _, body := range []string{"0\r\na:b\n\r\n\r\nx", "0\r\na:b\r\n\r\nc:d\r\n\r\n"} {
		_, _, err := s3api.ReadChunked(strings.NewReader(body))
		require.ErrorIs(t, err, s3api.ErrFraming, "%q", body)
	}
}

// What is not text is refused in every place of an answer, unless it is asked for encoded.
func TestWhatXMLCannotCarry(t *testing.T) {
	h := handle(t, s3api.Options{})
	for _, key := range []string{"%ff/a", "%ff/b", "z/1"} {
		h.want(200, "", "PUT", "/abc/"+key, "v", "x-evenkeel-key-bytes", "any")
	}
	for _, query := range []string{"list-type=2&delimiter=/", "delimiter=/", "versions&delimiter=/", "list-type=2",
		"evenkeel-splits=3", "delimiter=/&max-keys=2&prefix=%ff"} {
		h.want(400, "InvalidArgument", "GET", "/abc?"+query, "")
		require.Contains(t, h.want(200, "", "GET", "/abc?encoding-type=url&"+query, "").body, "%FF/")
	}
}

// What was not sent is not counted as listed.
func TestListingsThatFailCountNothing(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := handle(t, s3api.Options{Metrics: registry})
	for _, key := range []string{"a", "%ff"} {
		h.want(200, "", "PUT", "/abc/"+key, "v", "x-evenkeel-key-bytes", "any")
	}
	for target, n := range map[string]int{"/abc": 0, "/abc?prefix=a": 1} {
		h.want(map[int]int{0: 400, 1: 200}[n], "", "GET", target, "")
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP evenkeel_s3_listed_entries_total Keys and common prefixes sent in listings.
# TYPE evenkeel_s3_listed_entries_total counter
evenkeel_s3_listed_entries_total 1
`), "evenkeel_s3_listed_entries_total"))
}

// Bytes behind the record of an object that lives elsewhere are damage, be it one.
func TestBytesBehindARecord(t *testing.T) {
	o := s3api.Object{Modified: time.UnixMilli(1), External: true, Size: 5, ETag: "e"}
	_, err := s3api.ParseRecord(o.AppendRecord(nil))
	require.NoError(t, err)
	_, err = s3api.ParseRecord(append(o.AppendRecord(nil), 0))
	require.ErrorIs(t, err, store.Corrupt)
}

// Beyond the highest common prefix that there can be nothing is listed.
func TestNothingIsBeyondTheHighestPrefix(t *testing.T) {
	h := handle(t, s3api.Options{})
	for _, key := range []string{"a", "%ff", "%ffk"} {
		h.want(200, "", "PUT", "/abc/"+key, "v", "x-evenkeel-key-bytes", "any")
	}
	for form, marker := range map[string]string{"": "&marker=%ff", "&versions": "&key-marker=%ff"} {
		query := "/abc?encoding-type=url&delimiter=%ff" + form
		require.Contains(t, h.want(200, "", "GET", query, "").body, "<Key>a</Key>")
		body := h.want(200, "", "GET", query+marker, "").body
		require.NotContains(t, body, "<Key>")
		require.NotContains(t, body, "<CommonPrefixes>")
		require.Contains(t, body, "<IsTruncated>false</IsTruncated>")
	}
}

// Who may see some buckets sees each once, in order.
func TestSomeBucketsInOrder(t *testing.T) {
	key := &s3api.Key{ID: "ADMIN", Secret: "the secret of the admin", Only: []string{
		"zebra", "bucket-000002", "bucket-000001/x/", "bucket-000002/y/", "bucket-00000",
	}}
	s := serve(t, &crowded{n: 5}, s3api.Options{Keys: keysThatChange(func(string) *s3api.Key { return key })})
	body := s.as("ADMIN").want(200, "", "GET", "/", "").body
	require.Equal(t, []string{"<Name>bucket-000001", "<Name>bucket-000002"},
		regexp.MustCompile("<Name>[^<]*").FindAllString(body, -1))
	body = s.as("ADMIN").want(200, "", "GET", "/?max-buckets=1", "").body
	require.Equal(t, []string{"<Name>bucket-000001"}, regexp.MustCompile("<Name>[^<]*").FindAllString(body, -1))
	_, token, _ := strings.Cut(body, "<ContinuationToken>")
	token, _, _ = strings.Cut(token, "<")
	body = s.as("ADMIN").want(200, "", "GET", "/?max-buckets=1&continuation-token="+token, "").body
	require.Equal(t, []string{"<Name>bucket-000002"}, regexp.MustCompile("<Name>[^<]*").FindAllString(body, -1))

	// The buckets whose names only begin like that are not read.
	read := &counted{crowded: crowded{n: 5}}
	key.Only = []string{"bucket-00000", "bucket-000003"}
	s = serve(t, read, s3api.Options{Keys: keysThatChange(func(string) *s3api.Key { return key })})
	body = s.as("ADMIN").want(200, "", "GET", "/", "").body
	require.Equal(t, []string{"<Name>bucket-000003"}, regexp.MustCompile("<Name>[^<]*").FindAllString(body, -1))
	require.EqualValues(t, 2, read.n.Load())
}

// counted counts the buckets that are read.
type counted struct {
	crowded
	n atomic.Int64
}

func (c *counted) Buckets(ctx context.Context, prefix, after string) iter.Seq2[listing.BucketInfo, error] {
	return func(yield func(listing.BucketInfo, error) bool) {
		for info, err := range c.crowded.Buckets(ctx, prefix, after) {
			if c.n.Add(1); !yield(info, err) {
				return
			}
		}
	}
}
