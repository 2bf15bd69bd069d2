package s3api_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// stores are those that a server is tested over; pebble_test.go adds one.
var stores = map[string]func(t *testing.T) store.Store{
	"memstore": func(*testing.T) store.Store { return memstore.New() },
}

// server is a running server over a store.
type server struct {
	t       *testing.T
	url     string
	stop    func() // ends the server once all requests have ended
	buckets *listing.Client
	handler http.Handler
	// sign, if it isn't nil, signs a request by setting headers.
	sign func(r *sigv4.Request, body string)
}

func serve(t *testing.T, b s3api.Buckets, o s3api.Options) *server {
	t.Helper()
	h, err := s3api.New(b, o)
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &server{t: t, url: srv.URL, stop: srv.Close, handler: h}
}

func serveStore(t *testing.T, s store.Store) *server {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	srv := serve(t, s3api.Over(c), s3api.Options{SoleWriter: true})
	srv.buckets = c
	return srv
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the S3 error code of an answer.
func (a answer) code() string {
	var e struct {
		XMLName                                    xml.Name `xml:"Error"`
		Code, Message, Resource, RequestId, HostId string
	}
	if xml.Unmarshal([]byte(a.body), &e) != nil || e.Message == "" || e.RequestId != a.header.Get("x-amz-request-id") ||
		e.HostId != a.header.Get("x-amz-id-2") {
		return "no error document: " + a.body
	}
	return e.Code
}

// do sends a request with a raw path and headers as pairs.
func (s *server) do(method, uri, body string, headers ...string) answer {
	s.t.Helper()
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	path, query, _ := strings.Cut(uri, "?")
	// Opaque is sent as it is, so that nothing on this side cleans the path.
	u.Opaque, u.RawQuery = path, query
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, s.url, r)
	require.NoError(s.t, err)
	req.URL = u
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if s.sign != nil {
		s.sign(&sigv4.Request{Method: method, Path: path, Query: query, Host: req.Host, Header: req.Header,
			Length: int64(len(body))}, body)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, resp.Header.Get("x-amz-request-id"))
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// want does a request whose status is as expected; of an error also the code.
func (s *server) want(status int, code, method, uri, body string, headers ...string) answer {
	s.t.Helper()
	a := s.do(method, uri, body, headers...)
	require.Equal(s.t, status, a.status, "%s %s: %s", method, uri, a.body)
	if code != "" && method != http.MethodHead {
		require.Equal(s.t, code, a.code(), "%s %s", method, uri)
	}
	return a
}

func TestBuckets(t *testing.T) {
	s := serveStore(t, memstore.New())
	require.NotContains(t, s.want(200, "", "GET", "/", "").body, "<Bucket>")
	s.want(404, "NoSuchBucket", "HEAD", "/abc", "")
	s.want(404, "NoSuchBucket", "GET", "/abc?list-type=2", "")
	s.want(404, "NoSuchBucket", "GET", "/abc?list-type=2&max-keys=0", "")
	s.want(404, "NoSuchBucket", "GET", "/abc?location", "")
	s.want(404, "NoSuchBucket", "PUT", "/abc/k", "v")
	s.want(404, "NoSuchBucket", "GET", "/abc/k", "")
	s.want(404, "NoSuchBucket", "HEAD", "/abc/k", "")
	s.want(404, "NoSuchBucket", "DELETE", "/abc/k", "")
	s.want(404, "NoSuchBucket", "DELETE", "/abc", "")
	s.want(400, "InvalidBucketName", "PUT", "/ab", "")
	s.want(400, "InvalidBucketName", "PUT", "/Abc", "")
	s.want(400, "InvalidBucketName", "GET", "/a_b/k", "")

	a := s.want(200, "", "PUT", "/abc", "")
	require.Equal(t, "/abc", a.header.Get("Location"))
	require.Equal(t, "/abc", s.want(200, "", "PUT", "/abc", "").header.Get("Location"))
	s.want(409, "BucketAlreadyOwnedByYou", "PUT", "/abc", "", "x-evenkeel-bucket-kind", "plain")
	s.want(409, "BucketAlreadyOwnedByYou", "PUT", "/abc?evenkeel-cuts", "k")
	s.want(200, "", "PUT", "/abd/",
		`<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>`)
	s.want(400, "MalformedXML", "PUT", "/abe", "<Nonsense>")
	s.want(501, "NotImplemented", "PUT", "/abe",
		"<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>")
	s.want(501, "NotImplemented", "PUT", "/abe", "", "x-amz-acl", "public-read")
	s.want(501, "NotImplemented", "PUT", "/abe", "", "x-amz-bucket-object-lock-enabled", "true")
	s.want(200, "", "PUT", "/abe", "", "x-amz-acl", "private")

	a = s.want(200, "", "HEAD", "/abc", "")
	require.Equal(t, "us-east-1", a.header.Get("x-amz-bucket-region"))
	require.Contains(t, s.want(200, "", "GET", "/abc?location", "").body,
		`<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)

	s.want(200, "", "PUT", "/abc/k", "v")
	s.want(409, "BucketNotEmpty", "DELETE", "/abc", "")
	s.want(204, "", "DELETE", "/abc/k", "")
	s.want(204, "", "DELETE", "/abc/k", "")
	s.want(204, "", "DELETE", "/abc", "")
	s.want(404, "NoSuchBucket", "HEAD", "/abc", "")
	s.want(200, "", "PUT", "/abc", "")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")
}

type bucketsDocument struct {
	XMLName           xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
	Owner             struct{ ID, DisplayName string }
	Names             []string `xml:"Buckets>Bucket>Name"`
	Dates             []string `xml:"Buckets>Bucket>CreationDate"`
	ContinuationToken string
	Prefix            string
}

func TestListBuckets(t *testing.T) {
	s := serveStore(t, memstore.New())
	names := []string{"a-1", "a-2", "a-3", "b-1", "b-2"}
	for _, n := range names {
		s.want(200, "", "PUT", "/"+n, "")
	}
	list := func(query string) (d bucketsDocument) {
		t.Helper()
		require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "GET", "/"+query, "").body), &d))
		require.Len(t, d.Dates, len(d.Names))
		return d
	}
	all := list("")
	require.Equal(t, names, all.Names)
	require.Empty(t, all.ContinuationToken)
	require.NotEmpty(t, all.Owner.ID)
	require.Equal(t, names[3:], list("?prefix=b-").Names)
	for limit, pages := range map[string][]int{"1": {1, 1, 1, 1, 1}, "2": {2, 2, 1}, "5": {5}, "6": {5}} {
		var got []string
		var sizes []int
		token := ""
		for {
			d := list("?max-buckets=" + limit + "&continuation-token=" + token)
			got = append(got, d.Names...)
			sizes = append(sizes, len(d.Names))
			if token = d.ContinuationToken; token == "" {
				break
			}
		}
		require.Equal(t, names, got)
		require.Equal(t, pages, sizes)
	}
	require.NoError(t, s.buckets.CreateBucket(t.Context(), "B_0")) // by the library's rules, not by S3's
	require.Equal(t, names[:1],
		list("?max-buckets=1&continuation-token="+list("?max-buckets=1").ContinuationToken).Names)
	for _, bad := range []string{"max-buckets=0", "max-buckets=x", "max-buckets=10001", "continuation-token=*",
		"continuation-token=YWJj", "continuation-token=MTo"} {
		s.want(400, "InvalidArgument", "GET", "/?"+bad, "")
	}
}

func TestObjects(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s := serveStore(t, open(t))
			s.want(200, "", "PUT", "/abc", "")
			a := s.want(200, "", "PUT", "/abc/k", "hello", "Content-Type", "text/x", "Cache-Control", "no-cache",
				"x-amz-meta-One", "1", "x-amz-meta-two", "zwei", "Expires", "never")
			require.Equal(t, `"5d41402abc4b2a76b9719d911017c592"`, a.header.Get("ETag"))
			for _, method := range []string{"GET", "HEAD"} {
				a = s.want(200, "", method, "/abc/k", "")
				require.Equal(t, `"5d41402abc4b2a76b9719d911017c592"`, a.header.Get("ETag"))
				require.Equal(t, "5", a.header.Get("Content-Length"))
				require.Equal(t, "text/x", a.header.Get("Content-Type"))
				require.Equal(t, "no-cache", a.header.Get("Cache-Control"))
				require.Equal(t, "never", a.header.Get("Expires"))
				require.Equal(t, "1", a.header.Get("x-amz-meta-one"))
				require.Equal(t, "zwei", a.header.Get("x-amz-meta-two"))
				_, err := http.ParseTime(a.header.Get("Last-Modified"))
				require.NoError(t, err)
			}
			require.Equal(t, "hello", s.do("GET", "/abc/k", "").body)

			s.want(200, "", "PUT", "/abc/k", "")
			a = s.want(200, "", "GET", "/abc/k", "")
			require.Equal(t, "", a.body)
			require.Equal(t, `"d41d8cd98f00b204e9800998ecf8427e"`, a.header.Get("ETag"))
			require.Equal(t, "binary/octet-stream", a.header.Get("Content-Type"))
			require.Empty(t, a.header.Get("x-amz-meta-one"))

			s.want(404, "NoSuchKey", "GET", "/abc/missing", "")
			s.want(404, "", "HEAD", "/abc/missing", "")
			s.want(204, "", "DELETE", "/abc/missing", "")
		})
	}
}

// Metadata names go out in lower case, as S3 sends them: SDKs take them as they
// are written.
func TestMetadataNamesAreLowerCase(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "v", "X-Amz-Meta-Some-Name", "1")
	raw := s.raw("GET /abc/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	require.Contains(t, raw, "\r\nx-amz-meta-some-name: 1\r\n")
}

func TestKeysAreNeverCleaned(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	paths := []string{"/abc//", "/abc//k", "/abc/k/", "/abc/k//", "/abc/.", "/abc/..", "/abc/../abc", "/abc/./k",
		"/abc/a%2Fb/..", "/abc/%2E%2E", "/abc/a+b", "/abc/a%20b", "/abc/%25", "/abc/%00", "/abc/%0A", "/abc/k%3Fx"}
	want := map[string]string{}
	for i, p := range paths {
		body := strings.Repeat("x", i+1)
		s.want(200, "", "PUT", p, body)
		key, err := url.PathUnescape(strings.TrimPrefix(p, "/abc/"))
		require.NoError(t, err)
		want[key] = body
	}
	for _, p := range paths {
		key, _ := url.PathUnescape(strings.TrimPrefix(p, "/abc/"))
		require.Equal(t, want[key], s.want(200, "", "GET", p, "").body, p)
	}
	got := map[string]string{}
	for e, err := range s.buckets.Bucket("abc").All(context.Background(), listing.Query{}) {
		require.NoError(t, err)
		o, err := s3api.ParseRecord(e.Value)
		require.NoError(t, err)
		got[string(e.Key)] = string(o.Body)
	}
	require.Equal(t, want, got)
}

func TestKeyLimits(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	long := strings.Repeat("k", 1024)
	s.want(200, "", "PUT", "/abc/"+long, "v")
	s.want(200, "", "GET", "/abc/"+long, "")
	for _, method := range []string{"PUT", "GET", "HEAD", "DELETE"} {
		s.want(400, "KeyTooLongError", method, "/abc/"+long+"k", "")
	}
	s.want(400, "InvalidURI", "PUT", "/abc/%FF", "v")
	s.want(404, "NoSuchKey", "GET", "/abc/%FF", "")
	s.want(200, "", "PUT", "/abc/%FF", "v", "x-evenkeel-key-bytes", "any")
	s.want(200, "", "GET", "/abc/%FF", "")
	s.want(400, "InvalidArgument", "GET", "/abc?list-type=2", "")
	require.Contains(t, s.want(200, "", "GET", "/abc?list-type=2&encoding-type=url", "").body, "<Key>%FF</Key>")
	s.want(204, "", "DELETE", "/abc/%FF", "")
	require.NotContains(t, s.want(200, "", "GET", "/abc?list-type=2", "").body, "%FF")
}

func TestBodiesThatAreRefusedLeaveNothing(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/full", strings.Repeat("x", 4096))
	s.want(400, "EntityTooLarge", "PUT", "/abc/k", strings.Repeat("x", 4097))
	s.want(400, "EntityTooLarge", "PUT", "/abc/k", strings.Repeat("x", 1<<20))
	s.want(400, "BadDigest", "PUT", "/abc/k", "v", "Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==")
	s.want(400, "MetadataTooLarge", "PUT", "/abc/k", "v", "x-amz-meta-a", strings.Repeat("x", 2048))
	s.want(400, "InvalidArgument", "PUT", "/abc/k", "v", "Content-Type", strings.Repeat("x", 1025))
	for header, value := range map[string]string{
		"x-amz-tagging": "a=b", "x-amz-server-side-encryption": "AES256", "x-amz-storage-class": "GLACIER",
		"If-Modified-Since": "Fri, 24 May 2013 00:00:00 GMT", "Range": "bytes=0-1",
		"x-amz-acl": "public-read", "x-amz-website-redirect-location": "/", "x-amz-object-lock-mode": "GOVERNANCE",
		"x-amz-copy-source-range": "bytes=0-1",
	} {
		s.want(501, "NotImplemented", "PUT", "/abc/k", "v", header, value)
	}
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")
	s.want(200, "", "PUT", "/abc/k", "v", "x-amz-acl", "private", "x-amz-storage-class", "STANDARD")
}

// Bodies cut short on the wire: nothing is stored, the answer is IncompleteBody.
func TestBodiesCutShort(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	whole := chunked("hello", []int{2}, true)
	head := "PUT /abc/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
	streaming := head + "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nx-amz-decoded-content-length: 5\r\n"
	for name, raw := range map[string]string{
		"length":            head + "Content-Length: 10\r\n\r\nhello",
		"chunked transfer":  head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"no last chunk":     head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"aws-chunked":       streaming + "Content-Length: 1000\r\n\r\n" + whole,
		"aws-chunked early": streaming + "Content-Length: 50\r\n\r\n" + whole[:50],
		"aws-chunked lies":  streaming + "Content-Length: 5\r\n\r\nhello",
	} {
		require.Contains(t, s.raw(raw), "<Code>IncompleteBody</Code>", name)
		s.want(404, "NoSuchKey", "GET", "/abc/k", "")
	}
	require.Contains(t, s.raw(head+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "HTTP/1.1 200 OK")
	require.Equal(t, "hello", s.do("GET", "/abc/k", "").body)
}

func TestChunkedObject(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", chunked("hello", []int{2, 2}, true), "x-amz-content-sha256",
		"STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
		"x-amz-decoded-content-length", "5", "Content-Encoding", "aws-chunked,deflate, gzip", "Authorization",
		"AWS4-HMAC-SHA256 Credential=any/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0")
	a := s.want(200, "", "GET", "/abc/k", "", "Accept-Encoding", "identity")
	require.Equal(t, "hello", a.body)
	require.Equal(t, "deflate, gzip", a.header.Get("Content-Encoding"))
	s.want(200, "", "GET",
		"/abc/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=x&X-Amz-Date=20200101T000000Z&X-Amz-Expires=60&"+
			"X-Amz-SignedHeaders=host&X-Amz-Signature=0", "", "Accept-Encoding", "identity")
}

func TestObjectsWhoseBytesLiveElsewhere(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	a := s.want(200, "", "PUT", "/abc/big", "", "x-evenkeel-size", "5497558138880", "x-evenkeel-etag", `"abc-12"`,
		"Content-Type", "video/x", "x-amz-meta-at", "disk 7")
	require.Equal(t, `"abc-12"`, a.header.Get("ETag"))
	a = s.want(200, "", "HEAD", "/abc/big", "")
	require.Equal(t, []string{"5497558138880", `"abc-12"`, "video/x", "disk 7"},
		[]string{a.header.Get("Content-Length"), a.header.Get("ETag"), a.header.Get("Content-Type"),
			a.header.Get("x-amz-meta-at")})
	s.want(409, "ObjectBodyElsewhere", "GET", "/abc/big", "")
	body := s.want(200, "", "GET", "/abc?list-type=2", "").body
	require.Contains(t, body, "<Size>5497558138880</Size>")
	require.Contains(t, body, "<ETag>&quot;abc-12&quot;</ETag>")
	for _, bad := range [][]string{
		{"x-evenkeel-size", "1"}, {"x-evenkeel-etag", "a"}, {"x-evenkeel-size", "-1", "x-evenkeel-etag", "a"},
		{"x-evenkeel-size", "9223372036854775808", "x-evenkeel-etag", "a"},
		{"x-evenkeel-size", "1", "x-evenkeel-etag", `a"b`}, {"x-evenkeel-size", "1", "x-evenkeel-etag", "a b"},
		{"x-evenkeel-size", "1", "x-evenkeel-etag", strings.Repeat("a", 257)},
	} {
		s.want(400, "InvalidArgument", "PUT", "/abc/bad", "", bad...)
	}
	s.want(400, "InvalidArgument", "PUT", "/abc/bad", "body", "x-evenkeel-size", "4", "x-evenkeel-etag", "a")
	s.want(404, "NoSuchKey", "GET", "/abc/bad", "")
}

// What a program wrote through the library is an object of plain bytes.
func TestPlainValues(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte("k"), []byte("plain")))
	require.Equal(t, "plain", s.want(200, "", "GET", "/abc/k", "").body)
	require.Contains(t, s.want(200, "", "GET", "/abc?list-type=2", "").body,
		"<LastModified>1970-01-01T00:00:00.000Z</LastModified><ETag>&quot;")
	require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte("damaged"), []byte("\xfe\x01\x00")))
	require.Contains(t, s.want(500, "InternalError", "GET", "/abc?list-type=2", "").body, "damaged")
	s.want(500, "InternalError", "GET", "/abc/damaged", "")
	s.want(204, "", "DELETE", "/abc/damaged", "")
	s.want(200, "", "GET", "/abc?list-type=2", "")
}

func TestNotImplementedByName(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	for uri, name := range map[string]string{
		"POST /abc/k?uploads": "CreateMultipartUpload", "PUT /abc/k?partNumber=1&uploadId=u": "UploadPart",
		"GET /abc/k?uploadId=u":  "ListParts",
		"POST /abc/k?uploadId=u": "CompleteMultipartUpload", "DELETE /abc/k?uploadId=u": "AbortMultipartUpload",
		"GET /abc?uploads": "ListMultipartUploads",
		"GET /abc?policy":  "GetBucketPolicy", "PUT /abc/k?tagging": "PutObjectTagging",
		"PUT /abc?lifecycle": "PutBucketLifecycleConfiguration", "POST /abc": "PostObject",
		"PUT /abc?versioning": "PutBucketVersioning", "GET /abc/k?attributes": "GetObjectAttributes",
		"PUT /abc?encryption": "PutBucketEncryption",
	} {
		method, uri, _ := strings.Cut(uri, " ")
		require.Contains(t, s.want(501, "NotImplemented", method, uri, "").body, name)
	}
	require.Equal(t, "", s.want(501, "", "HEAD", "/abc?policy", "").body)
}

func TestCuts(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc?evenkeel-cuts", "a\nb\\x00\\xff\nü\n")
	for _, k := range []string{"A", "a", "b", "c", "%C3%BC"} {
		s.want(200, "", "PUT", "/abc/"+k, "v")
	}
	require.Equal(t, 5, strings.Count(s.want(200, "", "GET", "/abc?list-type=2", "").body, "<Key>"))
	for _, bad := range []string{"b\na\n", "a\na\n", "a\n\nb", "a\\q\n"} {
		s.want(400, "InvalidArgument", "PUT", "/abd?evenkeel-cuts", bad)
	}
	s.want(404, "NoSuchBucket", "HEAD", "/abd", "")
}

func TestHostileRequestLines(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	for raw, want := range map[string]string{
		"GET * HTTP/1.1":                           "400 Bad Request",
		"GET // HTTP/1.1":                          "InvalidURI",
		"GET /abc/%zz HTTP/1.1":                    "400 Bad Request",
		"GET http://h/abc//k HTTP/1.1":             "NoSuchKey",
		"GET /abc/../../etc/passwd HTTP/1.1":       "NoSuchKey",
		"GET /abc?list-type=2&prefix=%zz HTTP/1.1": "InvalidURI",
		"BREW /abc/k HTTP/1.1":                     "NotImplemented",
		"CONNECT /abc/k HTTP/1.1":                  "NotImplemented",
	} {
		require.Contains(t, s.raw(raw+"\r\nHost: h\r\nConnection: close\r\n\r\n"), want, raw)
	}
}

func TestErrorDocumentsEscape(t *testing.T) {
	s := serveStore(t, memstore.New())
	a := s.do("GET", "/abc/<&>%00\"", "")
	require.Equal(t, "NoSuchBucket", a.code())
	require.NotContains(t, a.body, "<&>")
	require.Equal(t, "application/xml", a.header.Get("Content-Type"))
}

func TestSplitPointsCoverTheListing(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	var want []string
	for i := range 300 {
		key := "k" + string(rune('a'+i/26/26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
		want = append(want, key)
		require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte(key), nil))
	}
	var points struct{ Key []string }
	require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "GET", "/abc?evenkeel-splits=4&encoding-type=url", "").
		body),
		&points))
	require.NotEmpty(t, points.Key)
	var got []string
	from := ""
	for _, to := range append(points.Key, "") {
		got = append(got, keysOf(t, s.want(200, "", "GET", "/abc?list-type=2&evenkeel-from="+from+"&evenkeel-to="+to,
			"").body)...)
		from = to
	}
	require.Equal(t, want, got)
	for _, bad := range []string{"0", "x", "10001", ""} {
		s.want(400, "InvalidArgument", "GET", "/abc?evenkeel-splits="+bad, "")
	}
}

func keysOf(t *testing.T, doc string) (keys []string) {
	t.Helper()
	var d listBucketResult
	require.NoError(t, xml.NewDecoder(bytes.NewReader([]byte(doc))).Decode(&d))
	for _, c := range d.Contents {
		keys = append(keys, c.Key)
	}
	return keys
}
